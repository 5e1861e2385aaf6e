//! The size of a session's display, and a part of it.

use crate::field::{Bad, FieldCode, within};

/// Size of the display in pixels, and how often it may be drawn per second at most in live views and recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Viewport {
    /// 1 to 16384.
    pub width: u32,
    /// 1 to 16384.
    pub height: u32,
    /// 1 to 1000, in hertz.
    pub refresh_rate: u32,
}

impl Default for Viewport {
    fn default() -> Self {
        Self { width: 1920, height: 1080, refresh_rate: 25 }
    }
}

impl Viewport {
    const MAX_SIDE: u32 = 16_384;
    /// 64 million pixels, 256 MiB of display memory: both sides at their bound together would need a gigabyte.
    const MAX_PIXELS: u64 = 64_000_000;

    /// A viewport as asked for; the refresh rate follows from the area unless given.
    ///
    /// # Errors
    /// The member that leaves its bounds.
    pub fn parse(width: Option<i64>, height: Option<i64>, refresh_rate: Option<i64>) -> Result<Self, Bad> {
        let required = || Bad::new(FieldCode::Required, "is required");
        let width =
            within(width.ok_or_else(|| required().of("width"))?, 1, Self::MAX_SIDE).map_err(|e| e.of("width"))?;
        let height =
            within(height.ok_or_else(|| required().of("height"))?, 1, Self::MAX_SIDE).map_err(|e| e.of("height"))?;
        let pixels = u64::from(width) * u64::from(height);
        if pixels > Self::MAX_PIXELS {
            return Err(Bad::new(FieldCode::OutOfRange, "must have at most 64000000 pixels"));
        }
        let refresh_rate = match refresh_rate {
            Some(rate) => within(rate, 1, 1000).map_err(|e| e.of("refresh_rate"))?,
            None if pixels <= 1_024_000 => 60,
            None if pixels <= 2_304_000 => 25,
            None => 10,
        };
        Ok(Self { width, height, refresh_rate })
    }
}

/// A part of the display, in pixels from its top left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Left edge.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
    /// At least 1.
    pub width: u32,
    /// At least 1.
    pub height: u32,
}

impl Region {
    /// A region as asked for, inside `display`.
    ///
    /// # Errors
    /// The member that is absent, or the edge that leaves the display.
    pub fn parse(
        display: Viewport,
        x: Option<i64>,
        y: Option<i64>,
        width: Option<i64>,
        height: Option<i64>,
    ) -> Result<Self, Bad> {
        let side = |name: &str, start: Option<i64>, length: Option<i64>, length_name: &str, whole: u32| {
            let required = |name: &str| Bad::new(FieldCode::Required, "is required").of(name);
            let start = within(start.ok_or_else(|| required(name))?, 0, whole - 1).map_err(|e| e.of(name))?;
            let length = length.ok_or_else(|| required(length_name))?;
            Ok((start, within(length, 1, whole - start).map_err(|e| e.of(length_name))?))
        };
        let (x, width) = side("x", x, width, "width", display.width)?;
        let (y, height) = side("y", y, height, "height", display.height)?;
        Ok(Self { x, y, width, height })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refresh_rate_follows_from_the_area() {
        for (width, height, rate) in [(1280, 800, 60), (1920, 1080, 25), (1920, 1200, 25), (2560, 1440, 10)] {
            let got = Viewport::parse(Some(width), Some(height), None).expect("valid");
            assert_eq!(got.refresh_rate, rate, "{width}x{height}");
        }
    }

    #[test]
    fn a_viewport_out_of_bounds_is_refused_with_its_member() {
        for (width, height, member) in [
            (Some(0), Some(1), "width"),
            (Some(-1), Some(1), "width"),
            (Some(1_000_000_000), Some(1), "width"),
            (Some(1), Some(16_385), "height"),
            (None, Some(1), "width"),
            (Some(1), None, "height"),
        ] {
            let bad = Viewport::parse(width, height, None).expect_err("out of bounds");
            assert_eq!(bad.at("viewport").field, format!("viewport.{member}"));
        }
        assert!(Viewport::parse(Some(16_384), Some(16_384), None).is_err());
    }

    #[test]
    fn a_region_stays_inside_the_display() {
        let display = Viewport { width: 100, height: 50, refresh_rate: 25 };
        let parse = |x, y, w, h| Region::parse(display, Some(x), Some(y), Some(w), Some(h));
        assert_eq!(parse(10, 0, 90, 50), Ok(Region { x: 10, y: 0, width: 90, height: 50 }));
        for (x, y, w, h) in [(100, 0, 1, 1), (0, 0, 101, 1), (10, 0, 91, 1), (0, 49, 1, 2), (-1, 0, 1, 1), (0, 0, 0, 1)]
        {
            assert_eq!(parse(x, y, w, h).expect_err("outside").code, FieldCode::OutOfRange);
        }
    }
}
