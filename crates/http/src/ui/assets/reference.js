// The reference of the API, from /openapi.json. Like that document, it is readable without a sign-in.
import { el } from './dom.js';

export const open = true;

let description = null;

async function described() {
  description ??= await (await fetch('/openapi.json', { credentials: 'omit' })).json();
  return description;
}

/** Resolves a reference. */
function resolved(schema) {
  const path = schema?.$ref;
  return path?.startsWith('#/') ? path.slice(2).split('/').reduce((part, name) => part?.[name], description) : schema;
}

const nameOf = (schema) => schema?.$ref?.split('/').pop();

/** Returns the name of a type: `string`, `integer`, `list of BrowserSession`. */
function kind(schema) {
  if (!schema) return 'anything';
  if (schema.$ref) return nameOf(schema);
  const several = schema.oneOf ?? schema.anyOf;
  if (several) return several.filter((one) => one.type !== 'null').map(kind).join(' or ');
  // A part without a type only lists required fields of another part.
  if (schema.allOf) return schema.allOf.filter((one) => one.$ref || one.properties).map(kind).join(' and ');
  const types = [schema.type].flat().filter((type) => type && type !== 'null');
  if (types[0] === 'array') return `list of ${kind(schema.items)}`;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(', ');
  if (types[0] === 'object' && schema.additionalProperties) return `map to ${kind(schema.additionalProperties)}`;
  return (schema.format ? `${types.join(' or ')} (${schema.format})` : types.join(' or ')) || 'anything';
}

function table(caption, rows) {
  if (rows.length === 0) return null;
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, el('table', {},
    el('caption', {}, caption),
    el('tbody', {}, rows.map(({ name, type, required, text }) => el('tr', {},
      el('th', { scope: 'row' }, el('code', {}, name), required ? el('span', { class: 'hint' }, ' required') : null),
      el('td', {}, type), el('td', {}, text ?? ''))))));
}

function fields(schema) {
  const whole = resolved(schema);
  const parts = (whole?.allOf ? whole.allOf.map(resolved) : [whole]).filter(Boolean);
  const required = new Set(parts.flatMap((part) => part.required ?? []));
  return parts.flatMap((part) => Object.entries(part.properties ?? {}).map(([name, property]) => ({
    name, type: kind(property), required: required.has(name), text: property.description ?? resolved(property)?.description,
  })));
}

function body(content) {
  return Object.entries(content ?? {}).flatMap(([type, { schema }]) => {
    const whole = resolved(schema);
    const inner = whole?.type === 'array' ? whole.items : schema;
    const what = [type, kind(schema)].filter(Boolean).join(': ');
    return [el('p', {}, el('code', {}, what)), table(`Fields of ${kind(inner)}`, fields(inner))];
  });
}

function operation(path, method, spec) {
  const parameters = (spec.parameters ?? []).map(resolved).map(({ name, in: where, schema, required, description: text }) => ({
    name, type: `${kind(schema)}, ${where}`, required, text,
  }));
  const answers = Object.entries(spec.responses ?? {}).map(([status, answer]) => {
    const whole = resolved(answer);
    const content = Object.entries(whole.content ?? {}).map(([type, { schema }]) => `${kind(schema)} as ${type}`).join(', ');
    return { name: status, type: content, text: whole.description };
  });
  const details = el('details', { class: 'operation' },
    el('summary', {}, el('span', { class: `method ${method}` }, method.toUpperCase()), el('code', { class: 'path' }, path),
      el('span', { class: 'summary' }, spec.summary ?? '')));
  // Created when the operation is opened, because there are many.
  details.addEventListener('toggle', () => {
    if (!details.open || details.children.length > 1) return;
    details.append(el('div', { class: 'inside' },
      spec.deprecated ? el('p', { class: 'state bad' }, 'Deprecated.') : null,
      spec.description ? el('p', {}, spec.description) : null,
      table('Parameters', parameters),
      spec.requestBody ? el('h4', {}, 'Body') : null, ...body(resolved(spec.requestBody)?.content),
      table('Answers', answers),
      ...Object.entries(spec.responses ?? {}).filter(([status]) => status.startsWith('2')).flatMap(([, answer]) => {
        const schema = Object.values(resolved(answer).content ?? {})[0]?.schema;
        const whole = resolved(schema);
        const inner = whole?.type === 'array' ? whole.items : schema;
        return [table(`Fields of ${kind(inner)}`, fields(inner))];
      }).filter(Boolean)));
  });
  const section = el('li', { id: spec.operationId ?? false }, details);
  section.words = `${method} ${path} ${spec.summary ?? ''} ${spec.operationId ?? ''}`.toLowerCase();
  return section;
}

export async function show(place) {
  const { info, paths } = await described();
  const groups = new Map();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, spec] of Object.entries(methods)) {
      const tag = spec.tags?.[0] ?? 'Other';
      groups.set(tag, [...(groups.get(tag) ?? []), operation(path, method, spec)]);
    }
  }
  const sections = [...groups].sort(([a], [b]) => a.localeCompare(b)).map(([tag, items]) => ({
    items, element: el('section', {}, el('h2', {}, tag), el('ul', { class: 'operations' }, items)),
  }));
  const count = el('p', { class: 'hint', role: 'status' });
  const filter = el('input', { id: 'find', type: 'search', placeholder: 'acquire, POST, screenshot …', autocomplete: 'off', spellcheck: 'false' });
  const find = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const { element, items } of sections) {
      for (const item of items) item.hidden = !words.every((word) => item.words.includes(word));
      const shown = items.filter((item) => !item.hidden).length;
      element.hidden = shown === 0;
      found += shown;
    }
    count.textContent = `${found} ${found === 1 ? 'operation' : 'operations'}`;
  };
  filter.addEventListener('input', find);
  place.append(
    el('h1', {}, 'API'),
    el('p', {}, info.description ?? '', ' Every call shows a key: ', el('code', {}, 'Authorization: Bearer csk_…'), '. For machines: ',
      el('a', { href: '/openapi.json', target: '_blank', rel: 'noopener' }, '/openapi.json'), '.'),
    el('form', { class: 'filters', role: 'search', 'aria-label': 'Find an operation', onsubmit: (event) => event.preventDefault() },
      el('label', { class: 'field' }, el('span', {}, 'Find'), filter)),
    count, ...sections.map(({ element }) => element));
  find();
}
