//! The size of a session's display, and a region of it.

use crate::field::{FieldCode, InvalidValue, within};

/// The size of the display in pixels, and the maximum frame rate of live views and recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Viewport {
    /// The width, 1 to 16384.
    pub width: u32,
    /// The height, 1 to 16384.
    pub height: u32,
    /// The maximum frame rate, 1 to 1000 hertz.
    pub refresh_rate: u32,
}

impl Default for Viewport {
    fn default() -> Self {
        Self { width: 1920, height: 1080, refresh_rate: 25 }
    }
}

impl Viewport {
    /// The maximum width and height, in pixels.
    pub const MAX_SIDE: u32 = 16_384;
    /// The highest refresh rate in hertz.
    pub const MAX_REFRESH_RATE: u32 = 1000;
    /// The maximum area: 256 MiB of display memory. Both sides at their maximum would need a gigabyte.
    const MAX_PIXELS: u64 = 64_000_000;

    /// Parses a viewport. The refresh rate defaults to one that depends on the area.
    ///
    /// # Errors
    /// Returns the members that are absent or out of range.
    pub fn parse(width: Option<i64>, height: Option<i64>, refresh_rate: Option<i64>) -> Result<Self, InvalidValue> {
        let required = || InvalidValue::new(FieldCode::Required, "is required");
        let side = |value: Option<i64>| value.ok_or_else(required).and_then(|side| within(side, 1, Self::MAX_SIDE));
        let width = side(width).map_err(|bad| bad.of("width"));
        let height = side(height).map_err(|bad| bad.of("height"));
        let rate = refresh_rate
            .map(|rate| within(rate, 1, Self::MAX_REFRESH_RATE).map_err(|bad| bad.of("refresh_rate")))
            .transpose();
        let (width, height, rate) = match (width, height, rate) {
            (Ok(width), Ok(height), Ok(rate)) => (width, height, rate),
            (width, height, rate) => {
                InvalidValue::any([width.err(), height.err(), rate.err()].into_iter().flatten())?;
                unreachable!("one of them was refused")
            }
        };
        let pixels = u64::from(width) * u64::from(height);
        if pixels > Self::MAX_PIXELS {
            return Err(InvalidValue::new(FieldCode::OutOfRange, "must have at most 64000000 pixels"));
        }
        let refresh_rate = rate.unwrap_or(match pixels {
            0..=1_024_000 => 60,
            1_024_001..=2_304_000 => 25,
            _ => 10,
        });
        Ok(Self { width, height, refresh_rate })
    }
}

/// A region of the display, in pixels from its top left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The left edge.
    pub x: u32,
    /// The upper edge.
    pub y: u32,
    /// The width, at least 1.
    pub width: u32,
    /// The height, at least 1.
    pub height: u32,
}

impl Region {
    /// Parses a region inside `display`.
    ///
    /// # Errors
    /// Returns the members that are absent or lie outside the display.
    pub fn parse(
        display: Viewport,
        x: Option<i64>,
        y: Option<i64>,
        width: Option<i64>,
        height: Option<i64>,
    ) -> Result<Self, InvalidValue> {
        let side = |names: [&str; 2], start: Option<i64>, length: Option<i64>, whole: u32| {
            let given = |value: Option<i64>| value.ok_or_else(|| InvalidValue::new(FieldCode::Required, "is required"));
            let start = given(start).and_then(|start| within(start, 0, whole - 1));
            // The maximum length depends on the start; without a start it is the whole side.
            let max = start.as_ref().map_or(whole, |start| whole - start);
            let length = given(length).and_then(|length| within(length, 1, max));
            match (start, length) {
                (Ok(start), Ok(length)) => Ok((start, length)),
                (start, length) => Err(vec![start.err().map(|b| b.of(names[0])), length.err().map(|b| b.of(names[1]))]),
            }
        };
        let across = side(["x", "width"], x, width, display.width);
        let down = side(["y", "height"], y, height, display.height);
        let ((x, width), (y, height)) = match (across, down) {
            (Ok(across), Ok(down)) => (across, down),
            (across, down) => {
                let refused = across.err().into_iter().chain(down.err()).flatten().flatten();
                InvalidValue::any(refused)?;
                unreachable!("one of them was refused")
            }
        };
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
    fn every_member_that_leaves_its_bounds_is_named() {
        let bad = Viewport::parse(Some(-1), Some(1_000_000_000), Some(0)).expect_err("out of bounds");
        let named: Vec<_> = bad.in_field("viewport").into_iter().map(|error| error.field).collect();
        assert_eq!(named, ["viewport.width", "viewport.height", "viewport.refresh_rate"]);
        let bad = Region::parse(Viewport::default(), Some(-1), None, Some(0), None).expect_err("out of bounds");
        let named: Vec<_> = bad.in_field("region").into_iter().map(|error| error.field).collect();
        assert_eq!(named, ["region.x", "region.width", "region.y", "region.height"]);
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
