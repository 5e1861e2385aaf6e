//! The handler of thumbnails of sessions.

use actix_web::http::header;
use jpeg_encoder::{Encoder, ImageBuffer, JpegColorType, rgb_to_ycbcr};
use png::{Decoder, Limits, Transformations};

use crate::{
    answer::Answer,
    error::{ApiError, Code},
    image_response,
    request::{ProjectKey, Request},
};

/// The maximum width of a thumbnail, in pixels.
const MAX_WIDTH: usize = 480;
const JPEG_QUALITY: u8 = 70;
/// The maximum size of a decoded screenshot, in bytes: more than the largest display has at four bytes per pixel.
const MAX_DECODED_BYTES: usize = 128 * 1024 * 1024;

/// `GET /ui/api/browsers/{id_or_name}/thumbnail`: returns a thumbnail. The request does not count as activity, so the session
/// may reach its idle timeout.
pub(crate) async fn thumbnail(mut request: Request<ProjectKey>) -> Answer {
    let session = request.services().sessions.get(request.scope(), &request.path("id_or_name")?, false).await?;
    if let Some(response) = request.relayed(&session).await? {
        return Ok(response);
    }
    session.admits(request.scope().organization_wide)?;
    let slot = image_response::acquire_slot(&session).await?;
    let screenshot = request.services().sessions.observer_screenshot(&session).await?;
    let thumbnail = tokio::task::spawn_blocking(move || scale_down(&screenshot)).await.map_err(ApiError::internal)?;
    let thumbnail =
        thumbnail.map_err(|error| ApiError::new(Code::BrowserUnavailable, "the picture is broken").caused_by(error))?;
    let mut response = slot.answer("image/jpeg", thumbnail);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// The screenshot is not a usable image.
#[derive(Debug, thiserror::Error)]
enum ImageError {
    #[error(transparent)]
    Png(#[from] png::DecodingError),
    #[error(transparent)]
    Jpeg(#[from] jpeg_encoder::EncodingError),
    #[error("it is empty, too large, or of an unknown form")]
    Form,
}

/// Scales a PNG down to a JPEG: each pixel is the mean of a square of the original.
fn scale_down(png: &[u8]) -> Result<Vec<u8>, ImageError> {
    let limits = Limits { bytes: MAX_DECODED_BYTES };
    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(png), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let size = reader.output_buffer_size().filter(|size| *size <= MAX_DECODED_BYTES).ok_or(ImageError::Form)?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels)?;
    let (width, height) = (frame.width as usize, frame.height as usize);
    let samples = frame.color_type.samples();
    let step = width.div_ceil(MAX_WIDTH).max(1);
    let (small_width, small_height) = (width / step, height / step);
    let fits = |length: usize| u16::try_from(length).ok().filter(|length| *length > 0).ok_or(ImageError::Form);
    let (w, h) = (fits(small_width)?, fits(small_height)?);
    let mut small = Small { pixels: Vec::with_capacity(small_width * small_height), width: w, height: h };
    for y in 0..small_height {
        for x in 0..small_width {
            small.pixels.push(mean(&pixels, frame.line_size, samples, (x * step, y * step), step));
        }
    }
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, JPEG_QUALITY).encode_image(small)?;
    Ok(jpeg)
}

/// A picture in red, green and blue. `Encoder::encode` would add the code for nine forms of pixels to the program.
struct Small {
    pixels: Vec<[u8; 3]>,
    width: u16,
    height: u16,
}

impl ImageBuffer for Small {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        JpegColorType::Ycbcr
    }

    fn width(&self) -> u16 {
        self.width
    }

    fn height(&self) -> u16 {
        self.height
    }

    fn fill_buffers(&self, y: u16, [lumas, blues, reds, _]: &mut [Vec<u8>; 4]) {
        let width = usize::from(self.width);
        let line = usize::from(y) * width;
        for &[red, green, blue] in &self.pixels[line..line + width] {
            let (luma, blue, red) = rgb_to_ycbcr(red, green, blue);
            lumas.push(luma);
            blues.push(blue);
            reds.push(red);
        }
    }
}

/// Returns the mean of a square whose upper left corner is at `at`, in red, green and blue.
fn mean(pixels: &[u8], line: usize, samples: usize, at: (usize, usize), side: usize) -> [u8; 3] {
    let mut sums = [0_usize; 3];
    for y in at.1..at.1 + side {
        let row = &pixels[y * line..];
        for pixel in row[at.0 * samples..(at.0 + side) * samples].chunks_exact(samples) {
            // A grey pixel has one sample, and possibly a second one for opacity.
            let colour = |channel: usize| usize::from(pixel[if samples < 3 { 0 } else { channel }]);
            (0..3).for_each(|channel| sums[channel] += colour(channel));
        }
    }
    sums.map(|sum| u8::try_from(sum / (side * side)).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, colour: png::ColorType) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(colour);
        let data = vec![200; width as usize * height as usize * colour.samples()];
        encoder.write_header().expect("a header").write_image_data(&data).expect("data");
        file
    }

    /// Returns the width and height of a baseline JPEG.
    fn size(jpeg: &[u8]) -> (u16, u16) {
        let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
        let number = |at: usize| u16::from_be_bytes([jpeg[at], jpeg[at + 1]]);
        (number(at + 7), number(at + 5))
    }

    #[test]
    fn a_thumbnail_is_at_most_480_wide_and_keeps_its_aspect_ratio() {
        use png::ColorType::{Grayscale, GrayscaleAlpha, Rgb, Rgba};
        for (width, height, colour, expected) in [
            (1920, 1080, Rgb, (480, 270)),
            (1280, 800, Rgba, (426, 266)),
            (300, 200, Rgb, (300, 200)),
            (1024, 768, Grayscale, (341, 256)),
            (1024, 768, GrayscaleAlpha, (341, 256)),
        ] {
            assert_eq!(
                size(&scale_down(&png(width, height, colour)).expect("a picture")),
                expected,
                "{width}x{height}"
            );
        }
    }

    #[test]
    fn data_that_is_no_image_is_refused() {
        let good = png(64, 64, png::ColorType::Rgb);
        for bad in [&b""[..], b"GIF89a", &good[..good.len() / 2]] {
            assert!(scale_down(bad).is_err());
        }
        assert!(scale_down(&png(5000, 3, png::ColorType::Rgb)).is_err(), "nothing is left of so low a picture");
    }
}
