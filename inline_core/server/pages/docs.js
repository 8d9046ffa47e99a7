// The API page: reads openapi.json and lists its operations. Text only, never HTML of the document.

/** @param {string} tag @param {Record<string, string>} attributes @param {(Node|string)[]} children */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** @param {any} parameter */
function parameterRow(parameter) {
  const schema = parameter.schema ?? {};
  const type = schema.type ?? (schema.anyOf ?? []).map((part) => part.type).filter(Boolean).join(" or ");
  return element("tr", {},
    element("td", {}, element("code", {}, parameter.name), parameter.required ? " (required)" : ""),
    element("td", {}, `${parameter.in}, ${type || "text"}`),
    element("td", {}, parameter.description ?? ""));
}

/** @param {string} path @param {string} method @param {any} operation */
function operationView(path, method, operation) {
  const parts = [element("p", {}, operation.description ?? "")];
  if (operation.parameters?.length) parts.push(element("table", {}, ...operation.parameters.map(parameterRow)));
  const example = operation.requestBody?.content?.["application/json"]?.example;
  if (example) parts.push(element("pre", {}, JSON.stringify(example, null, 2)));
  const replies = Object.entries(operation.responses).map(([status, reply]) =>
    element("tr", {}, element("td", {}, element("code", {}, status)), element("td", {}, reply.description ?? "")));
  parts.push(element("table", {}, ...replies));
  const title = element("summary", {}, element("b", { class: method }, method.toUpperCase()), element("code", {}, path),
    element("span", {}, (operation.description ?? "").split("\n")[0]));
  return element("details", {}, title, ...parts);
}

async function main() {
  const about = document.getElementById("about");
  const list = document.getElementById("operations");
  const find = document.getElementById("find");
  const reply = await fetch("openapi.json");
  if (!reply.ok) {
    about.textContent = `The description could not be read (${reply.status}).`;
    return;
  }
  const schema = await reply.json();
  about.textContent = `${schema.info.title} ${schema.info.version}. ${schema.info.description}`;
  for (const [path, methods] of Object.entries(schema.paths))
    for (const [method, operation] of Object.entries(methods)) list.append(operationView(path, method, operation));
  find.addEventListener("input", () => {
    const wanted = find.value.toLowerCase();
    for (const view of list.children) view.hidden = !view.textContent.toLowerCase().includes(wanted);
  });
}

main();
