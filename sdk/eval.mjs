// What a JavaScript eval case imports:
//
//   import { defineEval } from "sandbar/eval";
//   export default defineEval({ name, input, assert: ({ output }) => output.includes("3.5") });
//
// Keys are those of YAML cases (docs/evals.md) plus `assert`. The case runs with `sandbar eval`.
export function defineEval(spec) {
  if (spec === null || typeof spec !== "object") throw new TypeError("defineEval takes an object");
  if (typeof spec.input !== "string") throw new TypeError("defineEval: `input` must be the prompt, a string");
  if (spec.assert !== undefined && typeof spec.assert !== "function")
    throw new TypeError("defineEval: `assert` must be a function");
  return Object.freeze({ ...spec, [Symbol.for("sandbar.eval")]: true });
}
