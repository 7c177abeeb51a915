// Starts runs with a NATS client that has never heard of Fencepost: asked for, and published raw.
import { connect, createInbox, headers, StringCodec } from "nats";

const [url, namespace] = process.argv.slice(2);
const text = StringCodec();
const nc = await connect({ servers: url });
const said = {};

const ask = async (endpoint, question) => {
  const answer = await nc.request(`fp.${namespace}.api.${endpoint}`, text.encode(JSON.stringify(question)), { timeout: 10000 });
  return { ...JSON.parse(text.decode(answer.data)), code: answer.headers?.get("Nats-Service-Error-Code") ?? "" };
};

said.asked = await ask("start.add", { id: "from-js", input: 20 });
said.again = await ask("start.add", { id: "from-js", input: 20 });
said.refused = await ask("start.add", { id: "from-js-2", input: "twenty" });
said.result = await ask("result", { id: "from-js", wait_s: 10 });

const inbox = createInbox();
const answers = nc.subscribe(inbox, { max: 1, timeout: 10000 });
const replyTo = headers();
replyTo.set("Fp-Reply-To", inbox);
const stored = await nc.jetstream().publish(`fp.${namespace}.start.add`, text.encode('{"id": "raw-js", "input": 21}'), { headers: replyTo });
said.stream = stored.stream;
for await (const answer of answers) said.published = JSON.parse(text.decode(answer.data));
said.publishedResult = await ask("result", { id: "raw-js", wait_s: 10 });

console.log(JSON.stringify(said));
await nc.drain();
