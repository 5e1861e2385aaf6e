(async () => {
  // The tools of this document alone: the browser also lists those of embedded documents of the same origin.
  const all = (await document.modelContext?.getTools() ?? []).filter((tool) => tool.window === window);
  const forms = new Map([...document.querySelectorAll('form[toolname]')].map((form) => [form.getAttribute('toolname'), form]));
  const tools = [];
  let left = MAX_BYTES;
  for (const { name, title, description, inputSchema, annotations } of all.slice(0, MAX_TOOLS)) {
    const form = forms.get(name);
    const autosubmit = form?.hasAttribute('toolautosubmit');
    const tool = { name, title, description, inputSchema, annotations, autosubmit };
    left -= JSON.stringify(tool).length;
    if (left < 0) break;
    tools.push(tool);
  }
  return { title: document.title.slice(0, 1000).toWellFormed(), tools };
})()
