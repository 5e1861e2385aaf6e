//! A ZIP archive of one file, as the protocol of Selenium Grid wants its downloads. The file is stored without
//! compression.

use flate2::Crc;

const LOCAL_HEADER: u32 = 0x0403_4b50;
const DIRECTORY_ENTRY: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// The version that a reader needs: 2.0.
const VERSION: u16 = 20;
/// The flag of names in UTF-8.
const UTF_8: u16 = 1 << 11;
/// The first day that the format can hold, 1980-01-01.
const DATE: u16 = 0x21;

/// Returns an archive of one file; `None` if the name or the content is longer than the format allows.
pub(super) fn of_file(name: &str, content: &[u8]) -> Option<Vec<u8>> {
    let mut crc = Crc::new();
    crc.update(content);
    let (name_length, size) = (u16::try_from(name.len()).ok()?, u32::try_from(content.len()).ok()?);
    // Both headers contain these: version, flags, method, time, date, checksum, two sizes, two lengths.
    let mut facts = Vec::new();
    for short in [VERSION, UTF_8, 0, 0, DATE] {
        facts.extend_from_slice(&short.to_le_bytes());
    }
    for long in [crc.sum(), size, size] {
        facts.extend_from_slice(&long.to_le_bytes());
    }
    for short in [name_length, 0] {
        facts.extend_from_slice(&short.to_le_bytes());
    }

    let mut archive = Vec::with_capacity(content.len() + 2 * name.len() + 128);
    archive.extend_from_slice(&LOCAL_HEADER.to_le_bytes());
    archive.extend_from_slice(&facts);
    archive.extend_from_slice(name.as_bytes());
    archive.extend_from_slice(content);

    let directory = u32::try_from(archive.len()).ok()?;
    archive.extend_from_slice(&DIRECTORY_ENTRY.to_le_bytes());
    archive.extend_from_slice(&VERSION.to_le_bytes());
    archive.extend_from_slice(&facts);
    // The length of the comment, the disk, two kinds of attributes, and the position of the local header.
    archive.extend_from_slice(&[0; 14]);
    archive.extend_from_slice(name.as_bytes());

    let directory_size = u32::try_from(archive.len()).ok()? - directory;
    archive.extend_from_slice(&END.to_le_bytes());
    for short in [0_u16, 0, 1, 1] {
        archive.extend_from_slice(&short.to_le_bytes());
    }
    archive.extend_from_slice(&directory_size.to_le_bytes());
    archive.extend_from_slice(&directory.to_le_bytes());
    archive.extend_from_slice(&[0; 2]);
    Some(archive)
}
