//! A small picture of a session.

use actix_web::http::header;
use jpeg_encoder::{ColorType, Encoder};
use png::{Decoder, Limits, Transformations};

use crate::{
    answer::Answer,
    error::{ApiError, Code},
    image_response,
    request::{ProjectKey, Request},
};

/// How wide it is at most, in pixels.
const MAX_WIDTH: usize = 480;
const QUALITY: u8 = 70;
/// More than the largest display takes, four bytes each.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// `GET /ui/api/browsers/{id}/thumbnail`: what it shows now. Looking on is no use of the session: it may become idle.
pub(crate) async fn thumbnail(request: Request<ProjectKey>) -> Answer {
    let session = request.services().sessions.get(request.scope(), &request.path("id")?, false).await?;
    session.admits(request.scope().organization_wide)?;
    let place = image_response::place_of(&session).await?;
    let whole = request.services().sessions.glance(&session).await?;
    let small = tokio::task::spawn_blocking(move || shrunk(&whole)).await.map_err(ApiError::internal)?;
    let small =
        small.map_err(|error| ApiError::new(Code::BrowserUnavailable, "the picture is broken").caused_by(error))?;
    let mut answer = place.answer("image/jpeg", small);
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    Ok(answer)
}

/// A picture came that is none.
#[derive(Debug, thiserror::Error)]
enum BadPicture {
    #[error(transparent)]
    Png(#[from] png::DecodingError),
    #[error(transparent)]
    Jpeg(#[from] jpeg_encoder::EncodingError),
    #[error("it is empty, too large, or of an unknown form")]
    Form,
}

/// The PNG as a small JPEG: each of its dots is the mean of a square of the picture's.
fn shrunk(whole: &[u8]) -> Result<Vec<u8>, BadPicture> {
    let limits = Limits { bytes: MAX_BYTES };
    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(whole), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let size = reader.output_buffer_size().filter(|size| *size <= MAX_BYTES).ok_or(BadPicture::Form)?;
    let mut dots = vec![0; size];
    let frame = reader.next_frame(&mut dots)?;
    let (width, height) = (frame.width as usize, frame.height as usize);
    let samples = frame.color_type.samples();
    let step = width.div_ceil(MAX_WIDTH).max(1);
    let (small_width, small_height) = (width / step, height / step);
    let fits = |length: usize| u16::try_from(length).ok().filter(|length| *length > 0).ok_or(BadPicture::Form);
    let (w, h) = (fits(small_width)?, fits(small_height)?);
    let mut small = Vec::with_capacity(small_width * small_height * 3);
    for y in 0..small_height {
        for x in 0..small_width {
            small.extend(mean(&dots, frame.line_size, samples, (x * step, y * step), step));
        }
    }
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, QUALITY).encode(&small, w, h, ColorType::Rgb)?;
    Ok(jpeg)
}

/// The mean of a square whose upper left corner is at `at`, in red, green and blue.
fn mean(dots: &[u8], line: usize, samples: usize, at: (usize, usize), side: usize) -> [u8; 3] {
    let mut sums = [0_usize; 3];
    for y in at.1..at.1 + side {
        let row = &dots[y * line..];
        for dot in row[at.0 * samples..(at.0 + side) * samples].chunks_exact(samples) {
            // Grey is one sample, with or without a second that says how opaque it is.
            let colour = |which: usize| usize::from(dot[if samples < 3 { 0 } else { which }]);
            (0..3).for_each(|which| sums[which] += colour(which));
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

    /// Width and height of a baseline JPEG.
    fn size(jpeg: &[u8]) -> (u16, u16) {
        let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
        let number = |at: usize| u16::from_be_bytes([jpeg[at], jpeg[at + 1]]);
        (number(at + 7), number(at + 5))
    }

    #[test]
    fn a_picture_becomes_at_most_480_wide_and_keeps_its_form() {
        use png::ColorType::{Grayscale, GrayscaleAlpha, Rgb, Rgba};
        for (width, height, colour, expected) in [
            (1920, 1080, Rgb, (480, 270)),
            (1280, 800, Rgba, (426, 266)),
            (300, 200, Rgb, (300, 200)),
            (1024, 768, Grayscale, (341, 256)),
            (1024, 768, GrayscaleAlpha, (341, 256)),
        ] {
            assert_eq!(size(&shrunk(&png(width, height, colour)).expect("a picture")), expected, "{width}x{height}");
        }
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let good = png(64, 64, png::ColorType::Rgb);
        for bad in [&b""[..], b"GIF89a", &good[..good.len() / 2]] {
            assert!(shrunk(bad).is_err());
        }
        assert!(shrunk(&png(5000, 3, png::ColorType::Rgb)).is_err(), "nothing is left of so low a picture");
    }
}
