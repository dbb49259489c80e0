/** @type {import("next").NextConfig} */
export default {
  // Left in node_modules and loaded at run time, so that the preload of `sandbar env` sees it.
  serverExternalPackages: ["@vercel/sandbox"],
  turbopack: { root: import.meta.dirname },
};
