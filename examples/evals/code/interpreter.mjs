import { defineEval } from "sandbar/eval";

export default defineEval({
  name: "code-interpreter",
  tags: ["math"],
  input: "What's the median of [3, 1, 4, 1, 5, 9, 2, 6]?",
  script: [
    { tool: "run_code", input: { language: "javascript", code: "const a = [3, 1, 4, 1, 5, 9, 2, 6].sort((x, y) => x - y); (a[3] + a[4]) / 2" } },
    { if: "result:\\s+([\\d.]+)", text: "The median is {{1}}." },
  ],
  assert: ({ output }) => output.includes("3.5"),
});
