//! Pictures as PNG: fast to make rather than small.

/// Why a picture could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PictureError {
    #[error("the display gave {got} bytes for {width} × {height} pixels")]
    Length { got: usize, width: u32, height: u32 },
    #[error("the picture could not be encoded: {0}")]
    Encode(#[from] png::EncodingError),
}

/// A PNG from rows of blue, green, red and one unused byte, as a display of depth 24 keeps them.
pub(crate) fn from_bgrx(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, PictureError> {
    let wanted = u64::from(width) * u64::from(height) * 4;
    if pixels.len() as u64 != wanted {
        return Err(PictureError::Length { got: pixels.len(), width, height });
    }
    let mut rgb = Vec::with_capacity(pixels.len() / 4 * 3);
    for pixel in pixels.chunks_exact(4) {
        rgb.extend_from_slice(&[pixel[2], pixel[1], pixel[0]]);
    }
    let mut out = Vec::with_capacity(pixels.len() / 16);
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&rgb)?;
    writer.finish()?;
    Ok(out)
}

/// Width and height a PNG claims, or nothing where the bytes are none.
pub(crate) fn size(png: &[u8]) -> Option<(u32, u32)> {
    let header = png.strip_prefix(b"\x89PNG\r\n\x1a\n")?.get(8..16)?;
    let (width, height) = header.split_at(4);
    Some((u32::from_be_bytes(width.try_into().ok()?), u32::from_be_bytes(height.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_size_and_colours_it_was_made_from() {
        let png = from_bgrx(&[1, 2, 3, 0, 4, 5, 6, 0], 2, 1).expect("encodes");
        assert_eq!(size(&png), Some((2, 1)));
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().expect("reads");
        let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
        reader.next_frame(&mut pixels).expect("decodes");
        assert_eq!(pixels, [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn a_buffer_of_another_size_is_refused() {
        assert!(from_bgrx(&[0; 7], 2, 1).is_err());
        assert_eq!(size(b"no picture"), None);
    }
}
