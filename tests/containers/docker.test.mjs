// dockerd in a sandbox, where its image was built (images/build.sh docker). Its containers have the sandbox's policy and
// trust its authority, as podman's do.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { useSdk } from "../clients/sdk.mjs";
import { engine } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";
import { must, root, withImage } from "./podman.mjs";

const built = existsSync(join(process.env.SANDBAR_IMAGES ?? "/var/cache/sandbar/images", "manifests/docker.json"));

test("dockerd: run, build, the policy and its authority", { skip: !built && "images/build.sh docker" }, async (t) => {
  const world = await makeWorld();
  const tls = await world.https((request, response) => response.end(JSON.stringify({ auth: request.headers.authorization })));
  const { sandbox, server } = await useSdk({ config: `allow_nesting_on_class1 = true\n${world.config()}` });
  if (!(await server.call("GET", "/x/v1/info")).engines.find((e) => e.name === engine).nesting) return t.skip(`${engine} runs no containers`);
  const networkPolicy = { allow: { "api.test": [{ transform: [{ headers: { authorization: "Bearer canary" } }] }] } };
  const box = await sandbox({ runtime: undefined, image: "sandbar/docker:latest", __nesting: true, __isolation: engine, networkPolicy, timeout: 1_800_000 });
  await must(box, "(dockerd >/tmp/dockerd.log 2>&1 &); until docker info >/dev/null 2>&1; do kill -0 $(cat /run/docker.pid 2>/dev/null || echo $$) || { cat /tmp/dockerd.log; exit 1; }; sleep 0.5; done");
  await withImage(box, "docker import");
  assert.match(await must(box, "docker run --rm local/tiny:1 id"), /^uid=0/);
  assert.match(await must(box, "docker run --rm --privileged local/tiny:1 id"), /^uid=0/);
  assert.match(await must(box, "printf 'FROM local/tiny:1\\nRUN id > /made\\n' | DOCKER_BUILDKIT=0 docker build -q -t made - && docker run --rm made cat /made"), /uid=0/);
  const api = await root(box, `docker run --rm local/tiny:1 curl -sS -m 60 https://api.test:${tls}/`);
  assert.equal(api.stdout, '{"auth":"Bearer canary"}', api.stderr);
  assert.notEqual((await root(box, `docker run --rm local/tiny:1 curl -sS -m 60 https://closed.test:${tls}/`)).exitCode, 0);
  assert.match((await root(box, "docker run --rm local/tiny:1 curl -sS -m 60 http://198.51.100.1/")).stdout, /egress_denied/);
});
