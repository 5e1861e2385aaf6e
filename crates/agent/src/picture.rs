//! PNGs of the display, encoded for speed rather than size.

use crate::display::DisplayError;
use crate::x11::{Cursor, PIXEL, X11};
use casement_agent_protocol::Region;

/// The reason why a PNG could not be encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PictureError {
    #[error("the display gave {got} bytes for {width} × {height} pixels")]
    Length { got: usize, width: u32, height: u32 },
    #[error("the picture could not be encoded: {0}")]
    Encode(#[from] png::EncodingError),
}

/// Returns a PNG of `region` of the display, without the mouse cursor.
pub(crate) fn of_display(x11: &X11, region: Region) -> Result<Vec<u8>, DisplayError> {
    let mut picture = Rgb::new(region.width, region.height);
    x11.rows(region, Cursor::Hidden, |row| picture.push(row))?;
    Ok(picture.encode()?)
}

/// Pixels of red, green and blue, row by row from the top.
pub(crate) struct Rgb {
    pixels: Vec<u8>,
    width: u32,
    height: u32,
}

impl Rgb {
    fn new(width: u32, height: u32) -> Self {
        Self { pixels: Vec::with_capacity(width as usize * height as usize * 3), width, height }
    }

    /// Decodes a PNG; `None` if it is none, or one without colours.
    pub(crate) fn decode(png: &[u8]) -> Option<Self> {
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().ok()?;
        let mut pixels = vec![0; reader.output_buffer_size()?];
        let info = reader.next_frame(&mut pixels).ok()?;
        let (samples, has_8_bits) = (info.color_type.samples(), info.bit_depth == png::BitDepth::Eight);
        if !has_8_bits || samples < 3 {
            return None;
        }
        let mut picture = Self::new(info.width, info.height);
        picture.pixels.extend(pixels.chunks_exact(samples).flat_map(|pixel| pixel.iter().take(3)));
        Some(picture)
    }

    #[cfg(test)]
    pub(crate) fn of_rows(width: u32, rows: Vec<Vec<[u8; 3]>>) -> Self {
        let height = u32::try_from(rows.len()).unwrap();
        Self { pixels: rows.concat().concat(), width, height }
    }

    /// Returns the rows of the picture.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[[u8; 3]]> {
        let (pixels, _) = self.pixels.as_chunks::<3>();
        pixels.chunks_exact((self.width as usize).max(1))
    }

    /// Returns a part of the picture; `None` if it reaches beyond the picture.
    fn part(&self, region: Region) -> Option<Self> {
        let (left, top) = (region.x as usize, region.y as usize);
        let right = left + region.width as usize;
        let mut part = Self::new(region.width, region.height);
        for row in self.rows().skip(top).take(region.height as usize) {
            part.pixels.extend_from_slice(row.get(left..right)?.as_flattened());
        }
        Some(part)
    }

    /// Adds a row of blue, green, red and one unused byte, as a display of depth 24 stores them.
    fn push(&mut self, row: &[u8]) {
        let start = self.pixels.len();
        let (from, _) = row.as_chunks::<PIXEL>();
        self.pixels.resize(start + from.len() * 3, 0);
        let (to, _) = self.pixels[start..].as_chunks_mut::<3>();
        for (to, [blue, green, red, _]) in to.iter_mut().zip(from) {
            *to = [*red, *green, *blue];
        }
    }

    /// Scales to half the sides, each pixel the average of four; `None` if the picture is too small.
    fn halved(&self) -> Option<Self> {
        let mut half = Self::new(self.width / 2, self.height / 2);
        if half.width == 0 || half.height == 0 {
            return None;
        }
        let row = self.width as usize * 3;
        for pair in self.pixels.chunks_exact(row * 2) {
            let (above, below) = pair.split_at(row);
            for (above, below) in above.chunks_exact(6).zip(below.chunks_exact(6)) {
                let average = |at: usize| {
                    let sum = u16::from(above[at])
                        + u16::from(above[at + 3])
                        + u16::from(below[at])
                        + u16::from(below[at + 3]);
                    (sum / 4) as u8
                };
                half.pixels.extend([average(0), average(1), average(2)]);
            }
        }
        Some(half)
    }

    /// Encodes each pixel as its difference to the previous one, with a deflate for such rows. This is the fastest way
    /// for text and for photographs, and its files are a fifth larger than the smallest of the fast ones.
    fn encode(&self) -> Result<Vec<u8>, PictureError> {
        let expected = u64::from(self.width) * u64::from(self.height) * 3;
        if self.pixels.len() as u64 != expected {
            return Err(PictureError::Length { got: self.pixels.len(), width: self.width, height: self.height });
        }
        let mut out = Vec::with_capacity(self.pixels.len() / 16);
        let mut encoder = png::Encoder::new(&mut out, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fastest);
        encoder.set_filter(png::Filter::Sub);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(out)
    }
}

/// Halves the sides of a PNG until it has at most `max_bytes`; `None` if it is no PNG.
pub(crate) fn scaled_to(png: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
    let mut picture = Rgb::decode(png)?;
    loop {
        let encoded = picture.encode().ok()?;
        if encoded.len() <= max_bytes {
            return Some(encoded);
        }
        picture = picture.halved()?;
    }
}

/// Returns a part of a PNG; `None` if it is none or too small.
pub(crate) fn cropped(png: &[u8], region: Region) -> Option<Vec<u8>> {
    Rgb::decode(png)?.part(region)?.encode().ok()
}

/// Returns the width and height of a PNG; `None` for other bytes.
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
        let mut picture = Rgb::new(2, 1);
        picture.push(&[1, 2, 3, 0, 4, 5, 6, 0]);
        let png = picture.encode().expect("encodes");
        assert_eq!(size(&png), Some((2, 1)));
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().expect("reads");
        let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
        reader.next_frame(&mut pixels).expect("decodes");
        assert_eq!(pixels, [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn a_buffer_of_another_size_is_refused() {
        let mut picture = Rgb::new(2, 1);
        picture.push(&[0; 4]);
        assert!(picture.encode().is_err());
        assert_eq!(size(b"no picture"), None);
    }
}
