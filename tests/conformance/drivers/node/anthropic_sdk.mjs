// The official SDK for JavaScript.

import Anthropic from "@anthropic-ai/sdk";
import { VERSION } from "@anthropic-ai/sdk/version";
import { answerAll } from "./answering.mjs";

const MODEL = "claude-sonnet-4-5";

let client;
let beta;
let stream;
let frames;

async function all(pages) {
  const found = [];
  for await (const item of pages) found.push(item);
  return found;
}

function tool(name) {
  const schema = { type: "object", properties: { text: { type: "string" } } };
  return { type: "custom", name, description: `The ${name}.`, input_schema: schema };
}

function event(given) {
  if (given.interrupt) return { type: "user.interrupt" };
  const content = [{ type: "text", text: given.message ?? given.text }];
  if (given.message !== undefined) return { type: "user.message", content };
  return { type: "user.custom_tool_result", custom_tool_use_id: given.result, content };
}

const agent = ({ id, name, version, archived_at }) => ({
  id,
  name,
  version,
  archived: archived_at !== null,
});

const session = ({ id, title, status, agent, archived_at }) => ({
  id,
  title,
  status,
  agent_version: agent.version,
  archived: archived_at !== null,
});

const driver = {
  async connect({ rest_url, key }) {
    client = new Anthropic({ baseURL: rest_url, apiKey: key, maxRetries: 0, timeout: 30000 });
    beta = client.beta;
    return VERSION;
  },
  agent_create: async ({ name, tools }) =>
    agent(await beta.agents.create({ name, model: MODEL, tools: tools.map(tool) })),
  agent_get: async ({ id, version }) => agent(await beta.agents.retrieve(id, version ? { version } : {})),
  agent_update: async ({ id, version, name }) => agent(await beta.agents.update(id, { version, name })),
  agent_versions: async ({ id, limit }) =>
    (await all(beta.agents.versions.list(id, { limit }))).map(agent),
  agent_archive: async ({ id }) => agent(await beta.agents.archive(id)),
  async environment_create({ name }) {
    const { id } = await beta.environments.create({ name });
    return { id, name };
  },
  environment_delete: async ({ id }) => (await beta.environments.delete(id)).id,
  async session_create({ agent_id, environment_id, agent_version }) {
    const chosen = agent_version ? { type: "agent", id: agent_id, version: agent_version } : agent_id;
    return session(await beta.sessions.create({ agent: chosen, environment_id }));
  },
  session_get: async ({ id }) => session(await beta.sessions.retrieve(id)),
  session_update: async ({ id, title }) => session(await beta.sessions.update(id, { title })),
  session_list: async ({ agent_id, limit }) =>
    (await all(beta.sessions.list({ agent_id, limit }))).map(session),
  session_archive: async ({ id }) => session(await beta.sessions.archive(id)),
  session_delete: async ({ id }) => (await beta.sessions.delete(id)).id,
  send: async ({ session_id, events }) =>
    (await beta.sessions.events.send(session_id, { events: events.map(event) })).data,
  async stream_open({ session_id }) {
    stream = await beta.sessions.events.stream(session_id, {});
    frames = stream[Symbol.asyncIterator]();
  },
  async stream_next() {
    const { done, value } = await frames.next();
    return done ? null : value;
  },
  async stream_close() {
    stream.controller.abort();
  },
  events_list: async ({ session_id, ...query }) => all(beta.sessions.events.list(session_id, query)),
  async pending_actions({ session_id }) {
    // The SDK has no method for this route.
    const { data } = await client.get(`/v1/sessions/${session_id}/pending_actions`);
    return data.map(({ event_id, name, answer_type }) => ({ event_id, name, answer_type }));
  },
  thread_list: async ({ session_id }) =>
    (await all(beta.sessions.threads.list(session_id))).map(({ id, status, parent_thread_id }) => ({
      id,
      status,
      parent: parent_thread_id,
    })),
  thread_events: async ({ thread_id, ...query }) =>
    all(beta.sessions.threads.events.list(thread_id, query)),
};

await answerAll(driver, (error) =>
  error instanceof Anthropic.APIError && error.status
    ? { code: error.status, message: error.message, request_id: error.requestID }
    : null,
);
