// A sandbox with podman or docker, and an image made in it from what it has: nothing is downloaded.
import assert from "node:assert/strict";
import { sh } from "../clients/sdk.mjs";

// A shell, what it needs, and curl; no trust store of its own.
const makeImage = (load) => `set -e
mkdir -p /tmp/tree/bin /tmp/tree/tmp
for name in bash cat ls id mount curl sleep head tail perl; do
  file=$(readlink -f "$(command -v $name)")
  cp --parents "$file" /tmp/tree
  [ -e /tmp/tree/bin/$name ] || ln -s "$file" /tmp/tree/bin/$name
  for library in $(ldd "$file" | grep -o '/[^ ]*'); do cp -L --parents "$library" /tmp/tree; done
done
ln -s bash /tmp/tree/bin/sh
tar -C /tmp/tree -c . | ${load} - local/tiny:1
rm -rf /tmp/tree`;

export const root = (box, script) => sh(box, script, { sudo: true });

// As root of the sandbox; it has to succeed.
export async function must(box, script) {
  const done = await root(box, script);
  assert.equal(done.exitCode, 0, `${script}\n${done.stdout}${done.stderr}`);
  return done.stdout;
}

// Runs a shell script in a container.
export const inside = (box, script, flags = "") => root(box, `podman run --rm ${flags} local/tiny:1 sh -c '${script}'`);

export async function withImage(box, load = "podman import -q") {
  await must(box, makeImage(load));
  return box;
}

// None of these shell commands may succeed for its root.
export async function refused(box, tries, how = "sh") {
  const lines = tries.map((line, i) => `(${line}) >/dev/null 2>&1 && echo ${i}`).join("\n");
  const out = await must(box, `cat > /tmp/tries.sh <<'END'\n${lines}\necho end\nEND\n${how} /tmp/tries.sh`);
  const done = out.split("\n").filter((word) => /^\d+$/.test(word)).map((i) => tries[i]);
  assert.deepEqual(done, [], "these should have been refused");
  assert.match(out, /end\n$/);
}
