// `@grpc/grpc-js`, which knows the published descriptor set and nothing else of us.

import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { answerAll } from "./answering.mjs";

const MODEL = "claude-sonnet-4-5";
const definition = loader.loadFileDescriptorSetFromBuffer(readFileSync(process.argv[2]), {
  keepCase: true,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { counterfoil } = grpc.loadPackageDefinition(definition);

let agents;
let environments;
let sessions;
let metadata;
let stream;
let frames;

function ask(stub, method, request) {
  return new Promise((resolve, reject) => {
    stub[method](request, metadata, (error, response) => (error ? reject(error) : resolve(response)));
  });
}

async function all(stub, method, request) {
  const found = [];
  let page;
  do {
    const response = await ask(stub, method, page ? { ...request, page } : request);
    found.push(...response.data);
    page = response.next_page;
  } while (page);
  return found;
}

function tool(name) {
  const schema = { type: "object", properties: { text: { type: "string" } } };
  const input_schema = Buffer.from(JSON.stringify(schema));
  return { custom: { name, description: `The ${name}.`, input_schema } };
}

function event(given) {
  if (given.interrupt) return { user_interrupt: {} };
  const content = [{ text: { text: given.message ?? given.text } }];
  if (given.message !== undefined) return { user_message: { content } };
  return { user_custom_tool_result: { custom_tool_use_id: given.result, content } };
}

const agent = ({ id, name, version, archived_at }) => ({
  id,
  name,
  version,
  archived: archived_at !== null,
});

const statusOf = (status) => status.replace("SESSION_STATUS_", "").toLowerCase();

const session = ({ id, title, status, agent, archived_at }) => ({
  id,
  title: title ?? null,
  status: statusOf(status),
  agent_version: agent.version,
  archived: archived_at !== null,
});

// Waits for batches and hands out their frames one by one.
async function* framesOf(batches) {
  for await (const batch of batches) {
    if (batch.frames.length === 0) yield null;
    for (const frame of batch.frames) yield JSON.parse(frame.json);
  }
}

const driver = {
  async connect({ grpc_address, key }) {
    const open = (service) => new service(grpc_address, grpc.credentials.createInsecure());
    for (const stub of [agents, environments, sessions]) stub?.close();
    agents = open(counterfoil.registry.v1.AgentService);
    environments = open(counterfoil.registry.v1.EnvironmentService);
    sessions = open(counterfoil.ledger.v1.SessionService);
    metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${key}`);
    return "@grpc/grpc-js";
  },
  agent_create: async ({ name, tools }) =>
    agent((await ask(agents, "CreateAgent", { name, model: { id: MODEL }, tools: tools.map(tool) })).agent),
  agent_get: async ({ id, version }) =>
    agent((await ask(agents, "GetAgent", { agent_id: id, version })).agent),
  agent_update: async ({ id, version, name }) =>
    agent(
      (await ask(agents, "UpdateAgent", { agent_id: id, version, name, update_mask: { paths: ["name"] } }))
        .agent,
    ),
  agent_versions: async ({ id, limit }) =>
    (await all(agents, "ListAgentVersions", { agent_id: id, limit })).map(agent),
  agent_archive: async ({ id }) => agent((await ask(agents, "ArchiveAgent", { agent_id: id })).agent),
  async environment_create({ name }) {
    const { environment } = await ask(environments, "CreateEnvironment", { name });
    return { id: environment.id, name };
  },
  environment_delete: async ({ id }) =>
    (await ask(environments, "DeleteEnvironment", { environment_id: id })).id,
  async session_create({ agent_id, environment_id, agent_version }) {
    const reference = { agent: { id: agent_id, version: agent_version } };
    return session((await ask(sessions, "CreateSession", { agent: reference, environment_id })).session);
  },
  session_get: async ({ id }) =>
    session((await ask(sessions, "GetSession", { session_id: id })).session),
  async session_update({ id, title }) {
    const request = { session_id: id, title, update_mask: { paths: ["title"] } };
    return session((await ask(sessions, "UpdateSession", request)).session);
  },
  session_list: async ({ agent_id, limit }) =>
    (await all(sessions, "ListSessions", { agent_id, limit })).map(session),
  session_archive: async ({ id }) =>
    session((await ask(sessions, "ArchiveSession", { session_id: id })).session),
  session_delete: async ({ id }) => (await ask(sessions, "DeleteSession", { session_id: id })).id,
  async send({ session_id, events }) {
    const request = { session_id, events: events.map(event) };
    return (await ask(sessions, "SubmitEvents", request)).data.map((one) => JSON.parse(one));
  },
  async stream_open({ session_id }) {
    stream = sessions.StreamEvents({ session_id }, metadata);
    frames = framesOf(stream);
    // The first batch is empty: it says that the subscription is active.
    await frames.next();
  },
  async stream_next() {
    for (;;) {
      const { done, value } = await frames.next();
      if (done) return null;
      if (value !== null) return value;
    }
  },
  async stream_close() {
    stream.on("error", () => {});
    stream.cancel();
  },
  async events_list({ order, ...request }) {
    if (order) request.order = `LIST_ORDER_${order.toUpperCase()}`;
    return (await all(sessions, "ListEvents", request)).map((one) => JSON.parse(one));
  },
  pending_actions: async ({ session_id }) =>
    (await ask(sessions, "ListPendingActions", { session_id })).data.map(
      ({ event_id, name, answer_type }) => ({ event_id, name, answer_type }),
    ),
  thread_list: async ({ session_id }) =>
    (await all(sessions, "ListThreads", { session_id })).map(({ id, status, parent_thread_id }) => ({
      id,
      status: statusOf(status),
      parent: parent_thread_id ?? null,
    })),
  thread_events: async (request) =>
    (await all(sessions, "ListEvents", request)).map((one) => JSON.parse(one)),
};

await answerAll(driver, (error) =>
  typeof error.code === "number" ? { code: grpc.status[error.code], message: error.details } : null,
);
