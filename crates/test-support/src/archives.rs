//! Creates ZIP archives with Python, like callers.

use std::process::Command;

use anyhow::ensure;

/// Debian's Python. One of pyenv, which may be the first on the path, takes fifteen processes to start.
pub const PYTHON: &str = "/usr/bin/python3";

/// Runs a Python program that writes bytes to `out`, and returns the bytes. `io`, `json`, `stat`, `struct`, `sys`,
/// `warnings` and `zipfile` are imported.
///
/// # Errors
/// When Python cannot be started or fails, with its error output.
pub fn python(program: &str) -> anyhow::Result<Vec<u8>> {
    let program = format!(
        "import sys, io, zipfile, struct, stat, json, warnings\nout = io.BytesIO()\n{program}\nsys.stdout.buffer.write(out.getvalue())"
    );
    let done = Command::new(PYTHON).args(["-W", "ignore", "-c", &program]).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(done.stdout)
}

/// Returns a compressed archive with the entries that the lines of a Python program put into `z`.
///
/// # Errors
/// As [`python`].
pub fn zip_of(entries: &str) -> anyhow::Result<Vec<u8>> {
    let entries = entries.replace('\n', "\n ");
    python(&format!("with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as z:\n {entries}"))
}

/// Returns an archive of these names and texts.
///
/// # Errors
/// As [`python`].
pub fn zip(files: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
    let files = serde_json::to_string(files)?;
    zip_of(&format!("[z.writestr(name, text) for name, text in json.loads({files:?})]"))
}

/// The files of each archive of [`by_common_writers`], with their content.
pub const COMMON_TREE: &[(&str, &str)] = &[
    ("main.py", "print('hello')\n"),
    ("manifest.json", r#"{"manifest_version": 3, "name": "x", "version": "1"}"#),
    ("sub/deep/ünï.txt", "content"),
];
/// The empty directory of each archive of [`by_common_writers`].
pub const COMMON_EMPTY_DIRECTORY: &str = "empty";

/// Returns an archive of [`COMMON_TREE`] for each common writer, with the same records and fields as that writer's.
/// `RECORDS` says where the layouts come from.
///
/// # Errors
/// As [`python`].
pub fn by_common_writers() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let tree = serde_json::to_string(COMMON_TREE)?;
    let program = format!(
        "{RECORDS}\ntree = [(n, t.encode()) for n, t in json.loads({tree:?})]\nempty = {COMMON_EMPTY_DIRECTORY:?}\n{WRITERS}\n\
         out.write(json.dumps([(name, data.hex()) for name, data in made]).encode())"
    );
    let made: Vec<(String, String)> = serde_json::from_slice(&python(&program)?)?;
    made.into_iter().map(|(name, hex)| Ok((name, from_hex(&hex)?))).collect()
}

/// Runs a Python program like [`python`], in which `archive` writes records with chosen fields: see `RECORDS`.
///
/// # Errors
/// As [`python`].
pub fn records(program: &str) -> anyhow::Result<Vec<u8>> {
    python(&format!("{RECORDS}\n{program}"))
}

fn from_hex(hex: &str) -> anyhow::Result<Vec<u8>> {
    let digits = |at: usize| Ok(u8::from_str_radix(&hex[at..at + 2], 16)?);
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// Python functions that write the records of archives. `entry` describes one, with the fields of both headers:
/// `made` is "version made by", `attr` the external attributes, `descriptor` the sizes after the content (`signed`,
/// `bare`, or `long` for eight bytes), `extra` and `local_extra` the extra fields, `claims` the method that is named
/// whatever the content is.
const RECORDS: &str = r"
import zlib
UNIX, DOS, NTFS = 0x31e, 0x14, 0xb14
FILE, DIR = 0o100644 << 16, 0o40755 << 16 | 0x10
def entry(name, data=b'', made=UNIX, attr=None, flags=0, method=8, descriptor=None, extra=b'', local_extra=None,
          time=0x6000, date=0x5d7d, claims=None, long_local=False):
    name = name if isinstance(name, bytes) else name.encode()
    is_dir = name[-1:] in (b'/', b'\\')
    if attr is None: attr = (DIR if is_dir else FILE) if made >> 8 == 3 else (0x10 if is_dir else 0x20)
    local_extra = extra if local_extra is None else local_extra
    packed = zlib.compress(data, 9)[2:-4] if method == 8 else data
    crc, sizes = zlib.crc32(data), (len(packed), len(data))
    if descriptor: flags |= 8
    head = struct.pack('<HHHH', flags, claims or method, time, date)
    here = (0, 0, 0) if descriptor else (crc, *sizes)
    if long_local:
        local_extra = struct.pack('<HHQQ', 1, 16, here[2], here[1]) + local_extra
        here = (here[0], 0xffffffff, 0xffffffff)
    need = 45 if long_local else 20
    local = b'PK\3\4' + struct.pack('<H', need) + head + struct.pack('<IIIHH', *here, len(name), len(local_extra))
    local += name + local_extra + packed
    if descriptor: local += (b'' if descriptor == 'bare' else b'PK\7\b') + struct.pack('<IQQ' if descriptor == 'long' else '<III', crc, *sizes)
    def central(offset):
        record = b'PK\1\2' + struct.pack('<HH', made, need) + head + struct.pack('<IIIHHHHHII', crc, *sizes, len(name), len(extra), 0, 0, 0, attr, offset)
        return record + name + extra
    return local, central
def archive(*entries, prefix=b'', comment=b'', offsets_from=0, count=None):
    body, directory = bytearray(prefix), bytearray()
    for local, central in entries:
        directory += central(len(body) - offsets_from)
        body += local
    count = len(entries) if count is None else count
    end = struct.pack('<HHHHIIH', 0, 0, count, count, len(directory), len(body) - offsets_from, len(comment))
    return body + directory + b'PK\5\6' + end + comment
def extended_time(*times): return struct.pack('<HHB', 0x5455, 1 + 4 * len(times), 3) + b''.join(struct.pack('<I', t) for t in times)
def unicode_path(raw, name): return struct.pack('<HHBI', 0x7075, 5 + len(name.encode()), 1, zlib.crc32(raw)) + name.encode()
";

/// The archives of common writers. Python's are its own; the fields of those of Java, Info-ZIP for Unix and git were
/// compared with what these programs write; the others follow what is known of their programs.
const WRITERS: &str = r"
made = []
files = [(n, t) for n, t in tree]
def write(writer, of_file, directories, **ends):
    entries = [d if isinstance(d, tuple) else entry(d) for d in directories] + [of_file(n, t) for n, t in files]
    made.append((writer, archive(*entries, **ends)))
folders = ['sub/', 'sub/deep/', empty + '/']
nine = 1700000000

# macOS 14, Archive Utility and ditto -ck: version 2.1 on Unix, sizes after the content, the field UX, no UTF-8 flag
# though names are UTF-8, and the attributes of each file in __MACOSX.
ux = struct.pack('<HHII', 0x5855, 8, nine, nine)
ux_local = struct.pack('<HHIIHH', 0x5855, 12, nine, nine, 501, 20)
mac = lambda n, t: entry(n, t, made=0x315, descriptor='signed', extra=ux, local_extra=ux_local)
mac_dir = lambda n: entry(n, made=0x315, attr=0o40755 << 16 | 0x4000, method=0, extra=ux, local_extra=ux_local)
beside = [mac('__MACOSX/' + '/'.join(n.split('/')[:-1] + ['._' + n.split('/')[-1]]), b'\0\5\26\7' + bytes(100)) for n, _ in files]
write('macOS Archive Utility', mac, [mac_dir(d) for d in folders] + [mac_dir('__MACOSX/'), mac_dir('__MACOSX/sub/')] + beside)

# Windows 11, Explorer: FAT 2.0, names in the OEM code page without a flag, only the DOS attributes.
write('Windows Explorer', lambda n, t: entry(n.encode('cp437'), t, made=DOS), [entry(d, made=DOS, method=0) for d in folders])

# .NET Framework 4.5 to 4.6, PowerShell 5 Compress-Archive: backslashes, also after a directory; no attributes; the
# UTF-8 flag only for a name that needs it.
net = lambda n, t=b'': entry(n.replace('/', '\\'), t, made=DOS, attr=0, flags=0 if n.isascii() else 0x800, method=8 if t else 0)
write('.NET Framework 4.5', net, [net(empty + '/')])

# bsdtar 3.7 --format zip: streamed, the UTF-8 flag, times, owners and the libarchive field in the local header alone.
owner = struct.pack('<HHBBIBI', 0x7875, 11, 1, 4, 501, 4, 20)
tar = lambda n, t=b'': entry('./' + n, t, flags=0x800 if not n.isascii() else 0, descriptor='signed' if t else None, method=8 if t else 0,
    extra=extended_time(nine) + owner, local_extra=extended_time(nine, nine, nine) + owner + struct.pack('<HHBHHI', 0x6c78, 9, 7, 0x314, 0, FILE))
write('bsdtar', tar, [tar('')] + [tar(d) for d in folders])

# 7-Zip 23 on Windows: version 6.3 on FAT, NTFS times in the directory alone, the UTF-8 flag where the code page lacks a letter.
ntfs = struct.pack('<HHIHHQQQ', 10, 32, 0, 1, 24, *[(nine + 11644473600) * 10**7] * 3)
write('7-Zip', lambda n, t: entry(n, t, made=0x3f, flags=0 if n.isascii() else 0x800, extra=ntfs, local_extra=b''),
    [entry(d, made=0x3f, method=0, extra=ntfs, local_extra=b'') for d in folders])

# Python 3, zipfile and shutil.make_archive, by themselves.
import os, shutil, tempfile
with tempfile.TemporaryDirectory() as at:
    root = os.path.join(at, 'root')
    os.makedirs(os.path.join(root, empty))
    for n, t in files:
        os.makedirs(os.path.dirname(os.path.join(root, n)), exist_ok=True)
        with open(os.path.join(root, n), 'wb') as f: f.write(t)
    with open(shutil.make_archive(os.path.join(at, 'made'), 'zip', root), 'rb') as f: made.append(('shutil.make_archive', f.read()))
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr(empty + '/', '')
    for n, t in files:
        with z.open(n, 'w', force_zip64=True) as f: f.write(t)
made.append(('zipfile with ZIP64 fields', buffer.getvalue()))

# Go 1.22, archive/zip with Create: FAT 2.0, sizes after the content, no attributes, and the date 0.
go = lambda n, t=b'': entry(n, t, made=DOS, attr=0, time=0, date=0, flags=0 if n.isascii() else 0x800, descriptor='signed' if t else None, method=8 if t else 0)
write('Go archive/zip', go, [go(d) for d in folders])

# Java 17, ZipOutputStream: always the UTF-8 flag, directories as deflated entries without content, no attributes.
java = lambda n, t=b'', **more: entry(n, t, made=DOS, attr=0, flags=0x800, descriptor='signed', **more)
write('Java ZipOutputStream', java, [java(d) for d in folders])
# Java 17, jar: directories stored, and the field 0xcafe in the first entry.
jar_dir = lambda n, **more: entry(n, made=0xa, attr=0, flags=0x800, method=0, **more)
write('jar', java, [jar_dir(folders[0], extra=b'\xfe\xca\0\0')] + [jar_dir(d) for d in folders[1:]])

# Info-ZIP 3.0 on Unix, and on Windows with the field Unicode Path.
both = extended_time(nine, nine) + owner
info = lambda n, t=b'': entry(n, t, extra=extended_time(nine) + owner, local_extra=both, method=8 if t else 0)
write('Info-ZIP on Unix', info, [info(d) for d in folders])
def info_windows(n, t=b''):
    raw = n.encode('cp850', 'replace')
    return entry(raw, t, made=NTFS, extra=b'' if n.isascii() else unicode_path(raw, n), method=8 if t else 0)
write('Info-ZIP on Windows', info_windows, [info_windows(d) for d in folders])

# git 2, git archive: FAT 0.0, no attributes, the commit as the comment.
git = lambda n, t=b'': entry(n, t, made=0, attr=0 if t else 0x10, flags=0 if n.isascii() else 0x800, extra=extended_time(nine), method=8 if t else 0)
write('git archive', git, [git(d) for d in folders], comment=b'0123456789' * 4)

# Apache Commons Compress 1.21 to a stream: ZIP64 fields before the content and eight bytes for each size after it.
write('Commons Compress', lambda n, t: entry(n, t, flags=0x800, descriptor='long', long_local=True), folders)

# Old streaming writers leave out the signature before the sizes after the content.
write('a descriptor without signature', lambda n, t: entry(n, t, descriptor='bare', flags=0x800), folders)

# A program before the archive, with offsets from the beginning of the archive, and of the file (zip -A, zipapp).
stub = b'#!/usr/bin/env python3\n'
write('a program before the archive', lambda n, t: entry(n, t, flags=0x800), folders, prefix=stub, offsets_from=len(stub))
write('a program that counts', lambda n, t: entry(n, t, flags=0x800), folders, prefix=stub)
";
