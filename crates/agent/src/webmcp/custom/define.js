// The end of a script that begins with `const source`: it returns the definitions of the source.
try {
  const tools = await eval(source);
  if (!Array.isArray(tools) || tools.length === 0) throw new TypeError('it must evaluate to a non-empty array of definitions');
  if (tools.length > MAX_TOOLS) throw new RangeError('it may define at most MAX_TOOLS tools');
  let left = MAX_BYTES;
  // A function as an expression: its own text, or that of a method, which is valid in an object only.
  const expression = (execute, at) => {
    const text = Function.prototype.toString.call(execute);
    left -= text.length;
    if (left < 0) throw new RangeError('its functions may have at most MAX_BYTES characters together');
    for (const form of [`(${text}\n)`, `(Object.values({${text}\n})[0])`]) {
      try {
        new Function(`return ${form}`);
        return form;
      } catch { /* The next form. */ }
    }
    throw new TypeError(`definition ${at}: execute has no code that a page could run`);
  };
  const definitions = tools.map((given, at) => {
    const { kind, match, tool, execute } = Object(given);
    if (typeof execute !== 'function') throw new TypeError(`definition ${at}: execute must be a function`);
    return { kind, url_patterns: Object(match).url_patterns, tool, execute: kind === 'page' ? expression(execute, at) : undefined };
  });
  return { definitions: JSON.parse(JSON.stringify(definitions)) };
} catch (error) {
  return { error: String(error).slice(0, 1000) };
}
