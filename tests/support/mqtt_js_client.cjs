// What test_foreign_clients.py does with MQTT.js: argv is the folder of the package, a URL, the protocol level and a file
// with the authority's certificate. Prints one JSON object of what happened.
const [packagePath, url, level, authority] = process.argv.slice(2);
const mqtt = require(packagePath);
const fs = require('fs');
const five = level === '5';
const protocolId = level === '3' ? 'MQIsdp' : 'MQTT';
const lasting = five ? { properties: { sessionExpiryInterval: 600 } } : {};
const connect = (clientId, options) => mqtt.connectAsync(url, {
  protocolId, protocolVersion: Number(level), clientId, ca: fs.readFileSync(authority), reconnectPeriod: 0, ...options,
});
const collect = (client, count) => new Promise((done) => {
  const found = [];
  client.on('message', (topic, payload, packet) => {
    const told = packet.properties || {};
    found.push([topic, payload.toString(), packet.qos, packet.retain, told.contentType || null, told.userProperties || null]);
    if (found.length === count) done(found);
  });
});

async function main() {
  const seen = {};
  const root = `js/${level}/${Date.now()}`;
  const publisher = await connect('js-publisher', {});
  await publisher.publishAsync(`${root}/kept`, 'kept', { qos: 1, retain: true });
  let subscriber = await connect('js-subscriber', { clean: true });
  let messages = collect(subscriber, 4);
  await subscriber.subscribeAsync(`${root}/+`, { qos: 2 });
  for (const qos of [0, 1, 2]) {
    const properties = five ? { properties: { contentType: 'text', userProperties: { a: ['1', '2'] } } } : {};
    await publisher.publishAsync(`${root}/live`, `at ${qos}`, { qos, ...properties });
  }
  seen.messages = await messages;
  await subscriber.endAsync();

  let away = await connect('js-away', { clean: false, ...lasting });
  await away.subscribeAsync(`${root}/away`, { qos: 1 });
  await away.endAsync();
  await publisher.publishAsync(`${root}/away`, 'missed', { qos: 1 });
  away = mqtt.connect(url, {
    protocolId, protocolVersion: Number(level), clientId: 'js-away', ca: fs.readFileSync(authority), clean: false,
    reconnectPeriod: 0, ...lasting,
  });
  seen.missed = await collect(away, 1);
  await away.endAsync();

  const watcher = await connect('js-watcher', {});
  messages = collect(watcher, 1);
  await watcher.subscribeAsync(`${root}/will`, { qos: 1 });
  const mortal = await connect('js-mortal', { will: { topic: `${root}/will`, payload: Buffer.from('gone'), qos: 1 } });
  mortal.stream.destroy();
  seen.will = await messages;
  await Promise.all([publisher.endAsync(), watcher.endAsync()]);
  process.stdout.write(JSON.stringify(seen));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
