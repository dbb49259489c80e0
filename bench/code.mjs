// run_code: how long a cold context takes to its first result, against the bare interpreter's start on the same machine in
// the same run (budget: 3 times), and a warm one.
//   SANDBAR_URL=… SANDBAR_TOKEN=… node bench/code.mjs        ROUNDS=50 by default
const { SANDBAR_URL: url, SANDBAR_TOKEN: token } = process.env;
const rounds = Number(process.env.ROUNDS ?? 50);
const languages = [
  { language: "python", code: "6 * 7", bare: ["python3", "-c", "6 * 7"] },
  { language: "javascript", code: "6 * 7", bare: ["node", "-e", "6 * 7"] },
  { language: "bash", code: "echo 42", bare: ["bash", "-c", "echo 42"] },
];

async function call(method, path, body) {
  const response = await fetch(url + path, {
    method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text;
}
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
const ms = (n) => `${n.toFixed(1).padStart(8)} ms`;

const { sandbox, session } = JSON.parse(await call("POST", "/v3/sandboxes", { projectId: "prj_sandbar", image: "vercel/sandbox/universal",
  networkPolicy: { mode: "deny-all" }, persistent: false, timeout: 1_800_000 }));
// Until the result is here; what the cell does after it (files that changed, figures) comes with the end.
const cell = async (context, code) => {
  const begin = performance.now();
  const response = await fetch(`${url}/x/v1/sandboxes/${sandbox.name}/code`, {
    method: "POST", headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: JSON.stringify({ context, code }),
  });
  let text = "", took;
  for await (const piece of response.body) {
    text += Buffer.from(piece);
    if (text.includes("42")) took ??= performance.now() - begin;
  }
  if (!took || JSON.parse(text.trim().split("\n").at(-1)).status !== "ok") throw new Error(text);
  return took;
};
// The interpreter alone, many times in one shell of the machine: no API, no agent.
async function bareStart(argv) {
  const command = argv.map((a) => `'${a}'`).join(" ");
  const script = `b=$EPOCHREALTIME; for i in $(seq ${rounds}); do ${command} >/dev/null; done; e=$EPOCHREALTIME; echo $(( (\${e/./} - \${b/./}) / ${rounds} ))`;
  const text = await call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { command: "bash", args: ["-c", script], env: {}, sudo: false, wait: true, logs: true });
  return Number(JSON.parse(text.split("\n").find((l) => l.includes('"stdout"'))).data) / 1000;
}
async function command(argv) {
  const begin = performance.now();
  await call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { command: argv[0], args: argv.slice(1), env: {}, sudo: false, wait: true, logs: true });
  return performance.now() - begin;
}

console.log(`run_code, medians of ${rounds} (cold: from the call, over HTTP, to the first result of a new interpreter)`);
try {
  for (const { language, code, bare } of languages) {
    const cold = [], warm = [], asCommand = [], starts = [];
    for (let i = 0; i < rounds; i++) {
      const { context } = JSON.parse(await call("POST", `/x/v1/sandboxes/${sandbox.name}/contexts`, { language }));
      cold.push(await cell(context.id, code));
      warm.push(await cell(context.id, code));
      asCommand.push(await command(bare));
      await call("DELETE", `/x/v1/sandboxes/${sandbox.name}/contexts/${context.id}`);
      if (i % 10 === 0) starts.push(await bareStart(bare));
    }
    const ratio = median(cold) / median(starts);
    const verdict = ratio < 3 ? "  within 3×" : "  OVER the budget of 3×";
    console.log(`${language.padEnd(11)} bare start ${ms(median(starts))}   as a command ${ms(median(asCommand))}   cold ${ms(median(cold))} = ${ratio.toFixed(1)}×${verdict}   warm ${ms(median(warm))}`);
  }
} finally {
  await call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_sandbar`);
}
