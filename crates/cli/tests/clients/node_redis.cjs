// What node-redis gets from the RESP door, as one line of JSON. Arguments: port, password or empty.
const { createClient } = require('redis');

const [port, password] = [Number(process.argv[2]), process.argv[3] || undefined];

async function main() {
  // Nothing is tried again: what fails is to be seen.
  const client = createClient({ password, socket: { port, reconnectStrategy: false } });
  client.on('error', () => {});
  await client.connect();
  const throttle = (key, burst, ...more) =>
    client.sendCommand(['CL.THROTTLE', key, `${burst}`, '1', '3600', ...more]);
  const told = { ping: await client.ping(), throttle: [] };
  for (let i = 0; i < 4; i += 1) told.throttle.push(await throttle('node', 2));
  told.peek = await throttle('node', 2, '0');
  told.crab = await client.sendCommand(['THROTTLE', 'node-crab', '2', '1', '3600']);
  told.check = await client.sendCommand(['TIDEGATE.CHECK', 'api_key', 'node']);
  // Commands that are not awaited travel as a pipeline.
  const pipeline = Array.from({ length: 100 }, () => throttle('node-pipeline', 9));
  told.pipeline = (await Promise.all(pipeline)).filter((reply) => reply[0] === 0).length;
  told.unknown = await client.get('x').catch((error) => error.message);
  await client.close();
  console.log(JSON.stringify(told));
}

main().catch((error) => { console.error(error); process.exit(1); });
