// What ioredis gets from the RESP door, as one line of JSON. Arguments: port, password or empty.
const Redis = require('ioredis');

const [port, password] = [Number(process.argv[2]), process.argv[3] || undefined];

async function main() {
  // Nothing is tried again: what fails is to be seen.
  const redis = new Redis({
    port, password, host: '127.0.0.1', maxRetriesPerRequest: 0, retryStrategy: () => null,
  });
  const throttle = (key, burst, ...more) => redis.call('CL.THROTTLE', key, burst, 1, 3600, ...more);
  const told = { ping: await redis.ping(), throttle: [] };
  for (let i = 0; i < 4; i += 1) told.throttle.push(await throttle('io', 2));
  told.peek = await throttle('io', 2, 0);
  told.crab = await redis.call('THROTTLE', 'io-crab', 2, 1, 3600);
  told.check = await redis.call('TIDEGATE.CHECK', 'api_key', 'io');
  const pipeline = redis.pipeline();
  for (let i = 0; i < 100; i += 1) pipeline.call('CL.THROTTLE', 'io-pipeline', 9, 1, 3600);
  told.pipeline = (await pipeline.exec()).filter(([, reply]) => reply[0] === 0).length;
  told.unknown = await redis.get('x').catch((error) => error.message);
  told.quit = await redis.quit();
  console.log(JSON.stringify(told));
}

main().catch((error) => { console.error(error); process.exit(1); });
