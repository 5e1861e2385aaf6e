//! The minimal subset of Matroska that transfers frames with their times to ffmpeg.
//!
//! A sequence of bare JPEG files would have no times, and the end of a file would be known only when the next one
//! begins.

/// Returns the data before the first frame. `width` and `height` are those of the first frame; later ones may differ.
/// The last frame is shown for one frame of `framerate`.
pub(super) fn head(width: u32, height: u32, framerate: u32) -> Vec<u8> {
    let kind = element(0x1A45_DFA3, &[element(0x4282, &[b"matroska".to_vec()])]);
    // The unit of times, in nanoseconds: a millisecond.
    let info = element(0x1549_A966, &[element(0x2A_D7B1, &[number(1_000_000)])]);
    let picture = element(0xE0, &[element(0xB0, &[number(width.into())]), element(0xBA, &[number(height.into())])]);
    let track = [
        element(0xD7, &[number(1)]),
        element(0x73C5, &[number(1)]),
        element(0x83, &[number(1)]),
        element(0x23_E383, &[number(1_000_000_000 / u64::from(framerate.max(1)))]),
        element(0x86, &[b"V_MJPEG".to_vec()]),
        picture,
    ];
    let tracks = element(0x1654_AE6B, &[element(0xAE, &track)]);
    // Of unknown length: it ends when the pipe is closed.
    let segment = [&[0x18, 0x53, 0x80, 0x67, 0x01][..], &[0xFF; 7]].concat();
    [kind, segment, info, tracks].concat()
}

/// Returns the data before one frame of `length` bytes that is shown `at_ms` milliseconds after the beginning.
pub(super) fn before_picture(at_ms: u64, length: usize) -> Vec<u8> {
    let time = element(0xE7, &[number(at_ms)]);
    // Track 1, no offset from the time of the cluster, a key frame.
    let block_head = [0x81, 0, 0, 0x80];
    let block_length = length + block_head.len();
    let block = [vec![0xA3], size(block_length), block_head.to_vec()].concat();
    let cluster = [identifier(0x1F43_B675), size(time.len() + block.len() + length)].concat();
    [cluster, time, block].concat()
}

fn element(id: u32, content: &[Vec<u8>]) -> Vec<u8> {
    let content = content.concat();
    [identifier(id), size(content.len()), content].concat()
}

fn identifier(id: u32) -> Vec<u8> {
    id.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect()
}

fn number(value: u64) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// Returns a length in its eight-byte form.
fn size(length: usize) -> Vec<u8> {
    (length as u64 | 1 << 56).to_be_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_names_are_written_as_the_format_wants_them() {
        assert_eq!(size(5), [1, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(identifier(0xA3), [0xA3]);
        assert_eq!(identifier(0x1F43_B675), [0x1F, 0x43, 0xB6, 0x75]);
        let picture = before_picture(7, 100);
        assert!(picture.ends_with(&[0x81, 0, 0, 0x80]));
        // The length of the cluster includes a time of 17 bytes, the header of a block of 13 bytes, and the frame.
        assert_eq!(picture[4..12], size(17 + 13 + 100));
        assert_eq!(picture.len(), 12 + 17 + 13);
    }
}
