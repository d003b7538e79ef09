// Has the npm packages of senders sign and verify requests: from stdin and to stdout, as JSON.
// Runs in a folder that has these packages. See `support.sender_packages`.

import { readFileSync } from "node:fs";
import { sign, verify } from "@octokit/webhooks-methods";
import { Paddle } from "@paddle/paddle-node-sdk";
import "@shopify/shopify-api/adapters/node";
import { shopifyApi, ApiVersion } from "@shopify/shopify-api";
import lemonSqueezy from "lemonsqueezy-webhooks";

const players = {
  "@octokit/webhooks-methods": ({ secret }) => ({
    sign: async (body) => ({ "X-Hub-Signature-256": await sign(secret, body) }),
    verify: (headers, body) => verify(secret, body, headers["X-Hub-Signature-256"]),
  }),
  "@shopify/shopify-api": ({ secret }) => {
    const shopify = shopifyApi({
      apiKey: "key", apiSecretKey: secret, hostName: "shop.example", isEmbeddedApp: false,
      apiVersion: Object.values(ApiVersion)[0], logger: { log: () => {} },
    });
    return {
      // It verifies only.
      sign: () => null,
      verify: async (headers, body) => {
        const rawRequest = { method: "POST", url: "/webhooks/shopify", headers };
        return (await shopify.webhooks.validate({ rawBody: body, rawRequest, rawResponse: {} })).valid;
      },
    };
  },
  "@paddle/paddle-node-sdk": ({ secret, at }) => ({
    // It verifies only, and knows no time but the machine's, which is moved here.
    sign: () => null,
    verify: async (headers, body) => {
      const real = globalThis.Date;
      globalThis.Date = class extends real {
        constructor(...given) {
          super(...(given.length ? given : [at * 1000]));
        }
      };
      try {
        return await new Paddle("key").webhooks.isSignatureValid(body, secret, headers["Paddle-Signature"]);
      } finally {
        globalThis.Date = real;
      }
    },
  }),
  "lemonsqueezy-webhooks": ({ secret }) => ({
    // It verifies only. It is not Lemon Squeezy's own, whose package does not verify.
    sign: () => null,
    verify: async (headers, body) => {
      const request = new Request("http://shop.example/", { method: "POST", headers, body });
      const quiet = { onData: () => {}, onError: () => {} };
      return (await lemonSqueezy.whatwgWebhooksHandler({ secret, request, ...quiet })).status === 200;
    },
  }),
};

const answers = {};
for (const { name, package: from, body, changed, headers: recorded, ...rest } of JSON.parse(readFileSync(0))) {
  const player = players[from](rest);
  const { version } = JSON.parse(readFileSync(`node_modules/${from}/package.json`));
  const signed = await player.sign(body);
  const headers = { ...recorded, ...signed };
  answers[name] = {
    version,
    signed,
    verified: await player.verify(headers, body),
    verified_changed: await player.verify(headers, changed),
  };
}
console.log(JSON.stringify(answers));
