import { Tool } from "@anthropic-ai/sdk/resources/index.js";

const text = (description: string) => ({ type: "string", description });
export const machineTools: Tool[] = [
  { name: "write_file", description: "Writes a file.", input_schema: { type: "object", properties: { path: text("where"), content: text("what") }, required: ["path", "content"] } },
  { name: "execute_command", description: "Runs a line in a shell.", input_schema: { type: "object", properties: { command: text("the line"), timeoutMs: { type: "number", description: "10000 unless given" } }, required: ["command"] } },
  { name: "read_file", description: "Reads a file.", input_schema: { type: "object", properties: { path: text("which") }, required: ["path"] } },
];
