//! Decodes the names of entries.

use std::borrow::Cow;

use flate2::Crc;
use rawzip::ZipFileHeaderRecord;
use rawzip::extra_fields::ExtraFieldId;

use crate::EntryRefusal;
use crate::maker::Maker;

/// Code page 437, from 0x80 on: what names are written in unless something else is said (APPNOTE.TXT D.1).
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Returns the name of an entry as its maker meant it, with slashes between its parts.
pub(crate) fn name<'a>(header: &ZipFileHeaderRecord<'a>, maker: Maker) -> Result<Cow<'a, [u8]>, EntryRefusal> {
    let raw = header.file_path().as_bytes();
    if let Some(unicode) = unicode_path(header, raw) {
        return Ok(Cow::Owned(with_slashes(unicode.into_bytes(), maker)));
    }
    match std::str::from_utf8(raw) {
        Ok(_) if maker == Maker::Dos => Ok(Cow::Owned(with_slashes(raw.to_vec(), maker))),
        Ok(_) => Ok(Cow::Borrowed(raw)),
        Err(_) if header.flags().is_utf8() => Err(EntryRefusal::NotUtf8),
        // Backslashes stay: in a code page of an East Asian language they are the second byte of some letters.
        Err(_) if maker == Maker::Dos => Ok(Cow::Owned(from_code_page(raw).into_bytes())),
        Err(_) => Ok(Cow::Borrowed(raw)),
    }
}

/// Returns the name in the field "Info-ZIP Unicode Path" (APPNOTE.TXT 4.6.9), if it belongs to the name in the header.
fn unicode_path(header: &ZipFileHeaderRecord<'_>, raw: &[u8]) -> Option<String> {
    let (_, field) = header.extra_fields().find(|(id, _)| *id == ExtraFieldId::INFO_ZIP_UNICODE_PATH)?;
    let (1, rest) = field.split_first().map(|(version, rest)| (*version, rest))? else { return None };
    let (checksum, name) = rest.split_first_chunk()?;
    let mut crc = Crc::new();
    crc.update(raw);
    (u32::from_le_bytes(*checksum) == crc.sum()).then(|| String::from_utf8(name.to_vec()).ok())?
}

/// Replaces the backslashes of a name from Windows by slashes, unless it has slashes: then a backslash is no separator.
fn with_slashes(mut name: Vec<u8>, maker: Maker) -> Vec<u8> {
    if maker == Maker::Dos && !name.contains(&b'/') {
        name.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    name
}

fn from_code_page(raw: &[u8]) -> String {
    let high: Vec<char> = CODE_PAGE_437.chars().collect();
    let decode = |byte: &u8| match byte.checked_sub(0x80) {
        None => char::from(*byte),
        Some(index) => high.get(usize::from(index)).copied().unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    raw.iter().map(decode).collect()
}
