// Loaded before the preload in programs under test: names of the outside lead to stand-ins on loopback, and everything
// else that is not loopback is refused. SANDBAR_TEST_HOSTS is JSON, {"name:port": port on loopback}.
import net from "node:net";

const hosts = JSON.parse(process.env.SANDBAR_TEST_HOSTS ?? "{}");
const real = net.Socket.prototype.connect;
net.Socket.prototype.connect = function connect(...args) {
  const first = Array.isArray(args[0]) ? args[0][0] : args[0];
  const options = typeof first === "object" ? first : { port: first, host: args[1] };
  const to = hosts[`${options.host}:${options.port}`];
  const local = options.path || !options.host || /^(localhost|127\.|::1$)/.test(options.host);
  if (!to && !local) {
    process.nextTick(() => this.destroy(new Error(`a program under test dials ${options.host}:${options.port}`)));
    return this;
  }
  const there = to ? { ...options, host: "127.0.0.1", port: to } : options;
  if (Array.isArray(args[0])) args[0][0] = there;
  else args.splice(0, typeof first === "object" ? 1 : 2, there);
  return real.apply(this, args);
};
