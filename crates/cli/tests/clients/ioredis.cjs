// Prints the replies that ioredis gets from the RESP listener, as one line of JSON.
// Arguments: port, password or empty.
const Redis = require('ioredis');

const [port, password] = [Number(process.argv[2]), process.argv[3] || undefined];

async function main() {
  // No retries, so that every failure shows.
  const redis = new Redis({
    port, password, host: '127.0.0.1', maxRetriesPerRequest: 0, retryStrategy: () => null,
  });
  const throttle = (key, burst, ...more) => redis.call('CL.THROTTLE', key, burst, 1, 3600, ...more);
  const replies = { ping: await redis.ping(), throttle: [] };
  for (let i = 0; i < 4; i += 1) replies.throttle.push(await throttle('io', 2));
  replies.peek = await throttle('io', 2, 0);
  replies.crab = await redis.call('THROTTLE', 'io-crab', 2, 1, 3600);
  replies.check = await redis.call('TIDEGATE.CHECK', 'api_key', 'io');
  const pipeline = redis.pipeline();
  for (let i = 0; i < 100; i += 1) pipeline.call('CL.THROTTLE', 'io-pipeline', 9, 1, 3600);
  replies.pipeline = (await pipeline.exec()).filter(([, reply]) => reply[0] === 0).length;
  replies.unknown = await redis.get('x').catch((error) => error.message);
  replies.quit = await redis.quit();
  console.log(JSON.stringify(replies));
}

main().catch((error) => { console.error(error); process.exit(1); });
