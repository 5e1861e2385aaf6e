// The end of a script that begins with `const source, index, input, matches, within`: it calls the function of a definition.
try {
  const { execute } = Object((await eval(source))[index]);
  if (typeof execute !== 'function') throw new TypeError('the source does not define the tool any more');
  const output = JSON.stringify(await execute(input, { signal: AbortSignal.timeout(within), matches })) ?? 'null';
  return output.length > MAX_BYTES ? { is_too_long: true } : { output };
} catch (error) {
  return { error: String(error) };
}
