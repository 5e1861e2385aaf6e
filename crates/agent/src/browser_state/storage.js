// Reads and writes the local storage of the document's origin. Runs in an isolated world of an empty document.
globalThis.casementStorage = (() => {
  // In no message may a surrogate stand alone: JSON cannot carry it.
  const encode = text => {
    if (!/\p{Surrogate}/u.test(text)) return text;
    let bytes = '';
    for (let at = 0; at < text.length; at += 1) {
      const unit = text.charCodeAt(at);
      bytes += String.fromCharCode(unit & 255, unit >> 8);
    }
    return { utf16: btoa(bytes) };
  };
  const decode = item => {
    if (typeof item === 'string') return item;
    const bytes = atob(item.utf16);
    let text = '';
    for (let at = 0; at + 1 < bytes.length; at += 2) {
      text += String.fromCharCode(bytes.charCodeAt(at) | (bytes.charCodeAt(at + 1) << 8));
    }
    return text;
  };
  const items = () => {
    const keys = Array.from({ length: localStorage.length }, (_, index) => localStorage.key(index)).sort();
    return JSON.stringify(keys.map(key => [encode(key), encode(localStorage.getItem(key))]));
  };
  const escape = unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  let text = '';
  return {
    // Returns the number of bytes of the storage's JSON, and its length and beginning as ASCII.
    read(origin, longest) {
      if (location.origin !== origin) return null;
      const json = items();
      const bytes = new TextEncoder().encode(json).length;
      text = json.replace(/[^\x20-\x7e]/g, escape);
      return { bytes, length: text.length, text: text.slice(0, longest) };
    },
    // Returns a part of the storage that was read.
    part: (from, to) => text.slice(from, to),
    // Adds a part of the storage that will be written.
    add(part) {
      text += part;
    },
    // Returns a fingerprint of the storage.
    fingerprint(origin) {
      if (location.origin !== origin) return null;
      const json = items();
      let hash = 0;
      for (let at = 0; at < json.length; at += 1) hash = (Math.imul(hash, 31) + json.charCodeAt(at)) | 0;
      return `${json.length} ${hash}`;
    },
    // Replaces the storage by the parts. Returns false if they are not allowed; the storage is empty then.
    write(origin) {
      if (location.origin !== origin) return false;
      localStorage.clear();
      try {
        for (const [key, value] of JSON.parse(text)) localStorage.setItem(decode(key), decode(value));
        return true;
      } catch {
        localStorage.clear();
        return false;
      }
    },
  };
})();
