// node connect_remote_interface.mjs WS_URL: connects with the defaults of chrome-remote-interface, which reads the description of the
// protocol from the host of the address.
import CDP from 'chrome-remote-interface';

const client = await CDP({ target: process.argv[2] });
const { product } = await client.Browser.getVersion();
const { targetInfos } = await client.Target.getTargets();
const { targetId } = targetInfos.find(({ type }) => type === 'page');
const { sessionId } = await client.Target.attachToTarget({ targetId, flatten: true });
const { result } = await client.Runtime.evaluate({ expression: '6 * 7' }, sessionId);
await client.close();
console.log(JSON.stringify({ product: product.startsWith('Chrome/'), computed: result.value }));
