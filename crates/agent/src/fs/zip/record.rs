//! The records of an archive besides the content of its files (APPNOTE.TXT 6.3.10).

use time::OffsetDateTime;

pub(super) const LOCAL: u32 = 0x0403_4b50;
pub(super) const DESCRIPTOR: u32 = 0x0807_4b50;
pub(super) const CENTRAL: u32 = 0x0201_4b50;
pub(super) const END_64: u32 = 0x0606_4b50;
pub(super) const LOCATOR_64: u32 = 0x0706_4b50;
pub(super) const END: u32 = 0x0605_4b50;
/// The values of fields whose actual value is in a longer field elsewhere.
pub(super) const LONG: u32 = u32::MAX;
pub(super) const LONG_COUNT: u16 = u16::MAX;
pub(super) const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;
/// The flag of entries whose sizes follow their content.
pub(super) const FLAG_DESCRIPTOR: u16 = 1 << 3;
pub(super) const FLAG_UTF8: u16 = 1 << 11;
pub(super) const EXTRA_64: u16 = 0x0001;
pub(super) const EXTRA_TIME: u16 = 0x5455;
pub(super) const SYSTEM_UNIX: u8 = 3;

/// Appends numbers in the format of archives.
pub(super) trait Put {
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

/// One entry, as it is written before its content and at the end of the archive.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The name, with `/` at its end for a directory.
    pub(super) name: Vec<u8>,
    /// The value of `st_mode`.
    pub(super) mode: u32,
    /// The time of the last change, in seconds since 1970.
    pub(super) modified: i64,
    pub(super) method: u16,
    /// The offset of the entry in the archive.
    pub(super) offset: u64,
    pub(super) crc: u32,
    pub(super) packed: u64,
    pub(super) size: u64,
    /// True if the sizes follow the content.
    pub(super) streamed: bool,
    /// True if the sizes may need eight bytes.
    pub(super) long: bool,
}

impl Entry {
    fn flags(&self) -> u16 {
        let utf8 = if std::str::from_utf8(&self.name).is_ok() { FLAG_UTF8 } else { 0 };
        utf8 | if self.streamed { FLAG_DESCRIPTOR } else { 0 }
    }

    /// Appends the header before the content.
    pub(super) fn put_local(&self, out: &mut Vec<u8>) {
        let known = |value: u64| match (self.long, self.streamed) {
            (true, _) => LONG,
            (false, true) => 0,
            (false, false) => short(value),
        };
        out.u32(LOCAL);
        out.u16(if self.long { 45 } else { 20 });
        self.put_common(out, if self.streamed { 0 } else { self.crc }, known(self.packed), known(self.size));
        let times = self.times();
        out.u16((times.len() + if self.long { 20 } else { 0 }) as u16);
        out.extend_from_slice(&self.name);
        if self.long {
            out.u16(EXTRA_64);
            out.u16(16);
            out.u64(0);
            out.u64(0);
        }
        out.extend_from_slice(&times);
    }

    /// Appends the sizes after the content.
    pub(super) fn put_descriptor(&self, out: &mut Vec<u8>) {
        out.u32(DESCRIPTOR);
        out.u32(self.crc);
        if self.long {
            out.u64(self.packed);
            out.u64(self.size);
        } else {
            out.u32(short(self.packed));
            out.u32(short(self.size));
        }
    }

    /// Appends the record for the list at the end of the archive.
    pub(super) fn put_central(&self, out: &mut Vec<u8>) {
        let longs: Vec<u64> =
            [self.size, self.packed, self.offset].into_iter().filter(|value| *value >= u64::from(LONG)).collect();
        out.u32(CENTRAL);
        out.u16(u16::from(SYSTEM_UNIX) << 8 | 45);
        out.u16(if longs.is_empty() && !self.long { 20 } else { 45 });
        self.put_common(out, self.crc, short(self.packed), short(self.size));
        let times = self.times();
        out.u16((times.len() + if longs.is_empty() { 0 } else { 4 + longs.len() * 8 }) as u16);
        // No comment, the first disk, no attributes of the content.
        out.u16(0);
        out.u16(0);
        out.u16(0);
        let directory = if self.name.ends_with(b"/") { 0x10 } else { 0 };
        out.u32(self.mode << 16 | directory);
        out.u32(short(self.offset));
        out.extend_from_slice(&self.name);
        if !longs.is_empty() {
            out.u16(EXTRA_64);
            out.u16((longs.len() * 8) as u16);
            longs.into_iter().for_each(|value| out.u64(value));
        }
        out.extend_from_slice(&times);
    }

    fn put_common(&self, out: &mut Vec<u8>, crc: u32, packed: u32, size: u32) {
        out.u16(self.flags());
        out.u16(self.method);
        let (date, time) = dos(self.modified);
        out.u16(time);
        out.u16(date);
        out.u32(crc);
        out.u32(packed);
        out.u32(size);
        out.u16(self.name.len() as u16);
    }

    /// Returns the exact time as an extra field, if it fits: the usual field has no time zone and a resolution of two
    /// seconds.
    fn times(&self) -> Vec<u8> {
        let mut extra = Vec::new();
        if let Ok(seconds) = i32::try_from(self.modified) {
            extra.u16(EXTRA_TIME);
            extra.u16(5);
            extra.push(1);
            extra.u32(seconds.cast_unsigned());
        }
        extra
    }
}

/// Appends the end of the archive. `at` is the offset of the list of entries, and `length` its size in bytes.
pub(super) fn put_end(out: &mut Vec<u8>, entries: u64, at: u64, length: u64) {
    let long = entries >= u64::from(LONG_COUNT) || at >= u64::from(LONG) || length >= u64::from(LONG);
    if long {
        out.u32(END_64);
        out.u64(44);
        out.u16(u16::from(SYSTEM_UNIX) << 8 | 45);
        out.u16(45);
        out.u32(0);
        out.u32(0);
        out.u64(entries);
        out.u64(entries);
        out.u64(length);
        out.u64(at);
        out.u32(LOCATOR_64);
        out.u32(0);
        out.u64(at + length);
        out.u32(1);
    }
    let count = u16::try_from(entries).unwrap_or(LONG_COUNT);
    out.u32(END);
    out.u16(0);
    out.u16(0);
    out.u16(count);
    out.u16(count);
    out.u32(short(length));
    out.u32(short(at));
    out.u16(0);
}

fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(LONG)
}

/// Returns the date and time in the format of archives, in UTC. A time outside of the range becomes the nearest one in
/// it.
fn dos(seconds: i64) -> (u16, u16) {
    let moment = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    match moment.year() {
        ..1980 => (1 << 5 | 1, 0),
        2108.. => (127 << 9 | 12 << 5 | 31, 23 << 11 | 59 << 5 | 29),
        year => {
            let date = (year - 1980) as u16 * 512 + u16::from(u8::from(moment.month())) * 32 + u16::from(moment.day());
            let time =
                u16::from(moment.hour()) * 2048 + u16::from(moment.minute()) * 32 + u16::from(moment.second() / 2);
            (date, time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_of_the_format_become_the_nearest_ones() {
        const FIRST: (u16, u16) = (0x21, 0);
        const LAST: (u16, u16) = (0xff9f, 0xbf7d);
        assert_eq!((dos(-5), dos(315_532_800)), (FIRST, FIRST));
        assert_eq!((dos(4_354_819_198), dos(i64::from(u32::MAX) * 4)), (LAST, LAST));
        assert_eq!(dos(1_700_000_000), (0x576e, 0xb1aa), "2023-11-14 22:13:20");
    }
}
