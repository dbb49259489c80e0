// The same for require(); needs a Node.js that can require ES modules (20.19, 22.12 or newer).
require("./register.mjs");
const official = require("@vercel/sandbox");

module.exports = { ...official, ...require("./facade.cjs")(official) };
