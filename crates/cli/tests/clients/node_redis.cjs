// Prints the replies that node-redis gets from the RESP listener, as one line of JSON.
// Arguments: port, password or empty.
const { createClient } = require('redis');

const [port, password] = [Number(process.argv[2]), process.argv[3] || undefined];

async function main() {
  // No retries, so that every failure shows.
  const client = createClient({ password, socket: { port, reconnectStrategy: false } });
  client.on('error', () => {});
  await client.connect();
  const throttle = (key, burst, ...more) =>
    client.sendCommand(['CL.THROTTLE', key, `${burst}`, '1', '3600', ...more]);
  const replies = { ping: await client.ping(), throttle: [] };
  for (let i = 0; i < 4; i += 1) replies.throttle.push(await throttle('node', 2));
  replies.peek = await throttle('node', 2, '0');
  replies.crab = await client.sendCommand(['THROTTLE', 'node-crab', '2', '1', '3600']);
  replies.check = await client.sendCommand(['TIDEGATE.CHECK', 'api_key', 'node']);
  // Commands that are not awaited are sent as a pipeline.
  const pipeline = Array.from({ length: 100 }, () => throttle('node-pipeline', 9));
  replies.pipeline = (await Promise.all(pipeline)).filter((reply) => reply[0] === 0).length;
  replies.unknown = await client.get('x').catch((error) => error.message);
  await client.close();
  console.log(JSON.stringify(replies));
}

main().catch((error) => { console.error(error); process.exit(1); });
