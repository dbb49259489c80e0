// What the image sandbar/data is for: figures and frames. The image has to be there: nothing here is skipped.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startServer } from "../support/server.mjs";
import { Cells, number } from "./cells.mjs";

let server, py;
before(async () => {
  server = await startServer();
  const { sandbox } = await server.create({ image: "sandbar/data", timeout: 1_800_000 });
  py = new Cells(server, sandbox.name, "python");
});
after(() => server?.stop());

const COLUMNS = "application/vnd.sandbar.columns+json";
// Width and height from the header of a PNG.
const sizeOf = (base64) => {
  const png = Buffer.from(base64, "base64");
  assert.equal(png.subarray(1, 4).toString("latin1"), "PNG");
  assert.equal(png.subarray(12, 16).toString("latin1"), "IHDR");
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
};

test("open figures are PNGs at the cell's end, with or without show()", async () => {
  const n = number();
  const cell = await py.ok(`import matplotlib.pyplot as plt\nplt.plot([1, 2, ${n}])\nplt.show()\nplt.figure(figsize=(2, 1)); plt.bar([1, 2], [3, ${n}])\n${n}`);
  assert.equal(cell.text, String(n));
  assert.equal(cell.displays.length, 2);
  const [[w1, h1], [w2, h2]] = cell.displays.map((d) => sizeOf(d["image/png"]));
  assert.ok(w1 > 300 && h1 > 200 && w2 < w1 && h2 < h1, JSON.stringify([w1, h1, w2, h2]));
  assert.equal(cell.stderr, "", "no warning about a missing screen");
  assert.deepEqual((await py.ok("1")).displays, [], "a figure is shown once");
  const last = await py.ok("fig, ax = plt.subplots(); ax.plot([1, 2]); fig");
  assert.equal(last.displays.length, 1);
  assert.equal(last.result, undefined, "a figure that is open is not shown twice");
  const closed = await py.ok("fig");
  sizeOf(closed.result["image/png"]);
});

test("a frame is columns with types, beside its text and HTML", async () => {
  const n = number();
  const cell = await py.ok(`import pandas as pd, numpy as np\nframe = pd.DataFrame({"id": [1, 2, 3], "value": [0.5, np.nan, ${n}.25], "name": ["a", None, "é"], "ok": [True, False, True], "day": pd.to_datetime(["2024-01-02", None, "2024-03-04"])})\nframe`);
  const { columns, rows, truncated } = cell.result[COLUMNS];
  assert.equal(rows, 3);
  assert.equal(truncated, false);
  assert.deepEqual(columns.map((c) => [c.name, c.type]), [["id", "int64"], ["value", "float64"], ["name", columns[2].type], ["ok", "bool"], ["day", columns[4].type]]);
  assert.deepEqual(columns[0].values, [1, 2, 3]);
  assert.deepEqual(columns[1].values, [0.5, null, n + 0.25]);
  assert.deepEqual(columns[2].values, ["a", null, "é"]);
  assert.deepEqual(columns[3].values, [true, false, true]);
  assert.match(columns[4].values[0], /^2024-01-02/);
  assert.equal(columns[4].values[1], null);
  assert.match(columns[4].type, /^datetime64/);
  assert.match(cell.result["text/html"], /<table/);
  assert.match(cell.result["text/plain"], new RegExp(`${n}.25`));
});

test("a long frame is cut and says so; a series is one column", async () => {
  const n = number();
  const long = (await py.ok(`pd.DataFrame({"i": range(5000)}).add(${n})`)).result[COLUMNS];
  assert.equal(long.rows, 5000);
  assert.equal(long.truncated, true);
  assert.deepEqual([long.columns[0].values.length, long.columns[0].values[999]], [1000, n + 999]);
  const series = (await py.ok(`pd.Series([${n}, 2], name="s")`)).result[COLUMNS];
  assert.deepEqual(series.columns, [{ name: "s", type: "int64", values: [n, 2] }]);
  const mean = await py.ok(`float(pd.Series(range(${n})).mean())`);
  assert.equal(Number(mean.text), (n - 1) / 2);
});
