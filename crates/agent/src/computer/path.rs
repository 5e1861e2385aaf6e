//! The path of a mouse moved by hand: a curve, slow at both ends.

use std::time::Duration;

use casement_agent_protocol::computer::Point;

/// The time between two points of a path.
const STEP: Duration = Duration::from_millis(10);
/// The maximum number of points of a path.
const MAX_STEPS: u32 = 400;
/// The base duration of a path, and the additional duration for each pixel, in microseconds.
const SHORT_US: f64 = 120_000.0;
const PIXEL_US: f64 = 700.0;
/// The maximum duration of a path whose duration was not specified.
const LONG: Duration = Duration::from_millis(1_500);
/// The maximum distance of a curve's first control point from the straight line, as a fraction of the line's length.
const BEND: f64 = 0.18;

/// Returns the duration of a path whose duration was not specified.
pub(super) fn duration(from: Point, to: Point) -> Duration {
    let micros = SHORT_US + PIXEL_US * distance(from, to);
    Duration::from_secs_f64(micros / 1e6).min(LONG)
}

/// Returns the distance of two points in pixels.
pub(super) fn distance(from: Point, to: Point) -> f64 {
    (f64::from(to.x) - f64::from(from.x)).hypot(f64::from(to.y) - f64::from(from.y))
}

/// Returns the points of a curve, of which the last is `to`, and the pause after each. `side` is the direction and the
/// amount of the bend, from -1 to 1.
pub(super) fn curve(
    from: Point,
    to: Point,
    within: Duration,
    side: f64,
    display: (u32, u32),
) -> (Vec<Point>, Duration) {
    let steps = u32::try_from(within.as_millis() / STEP.as_millis()).unwrap_or(u32::MAX).clamp(1, MAX_STEPS);
    let (x0, y0, x3, y3) = (f64::from(from.x), f64::from(from.y), f64::from(to.x), f64::from(to.y));
    let (across, down) = (x3 - x0, y3 - y0);
    let bend = BEND * side;
    // Two control points beside the line, the first further from it than the second.
    let (x1, y1) = (x0 + across * 0.3 - down * bend, y0 + down * 0.3 + across * bend);
    let (x2, y2) = (x0 + across * 0.75 - down * bend * 0.5, y0 + down * 0.75 + across * bend * 0.5);
    let places = (1..=steps).map(|step| {
        let part = f64::from(step) / f64::from(steps);
        let t = part * part * (3.0 - 2.0 * part);
        let u = 1.0 - t;
        let at =
            |a: f64, b: f64, c: f64, d: f64| u * u * u * a + 3.0 * u * u * t * b + 3.0 * u * t * t * c + t * t * t * d;
        Point { x: pixel(at(x0, x1, x2, x3), display.0), y: pixel(at(y0, y1, y2, y3), display.1) }
    });
    let mut places: Vec<_> = places.collect();
    if let Some(last) = places.last_mut() {
        *last = to;
    }
    (places, within / steps)
}

/// Returns `steps` points on a straight line, of which the last is `to`.
pub(super) fn line(from: Point, to: Point, steps: u32) -> impl Iterator<Item = Point> {
    let steps = steps.max(1);
    (1..=steps).map(move |step| {
        let part = f64::from(step) / f64::from(steps);
        let at = |a: u32, b: u32| pixel(f64::from(a) + (f64::from(b) - f64::from(a)) * part, u32::MAX);
        Point { x: at(from.x, to.x), y: at(from.y, to.y) }
    })
}

/// Returns the nearest pixel of a side of `length` pixels.
fn pixel(place: f64, length: u32) -> u32 {
    let last = f64::from(length.saturating_sub(1));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the side, which a u32 holds")]
    let pixel = place.round().clamp(0.0, last) as u32;
    pixel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_it_should_stays_on_the_display_and_is_none_of_a_ruler() {
        let (from, to) = (Point { x: 0, y: 0 }, Point { x: 799, y: 3 });
        for side in [-1.0, 0.4, 1.0] {
            let (places, pause) = curve(from, to, Duration::from_millis(500), side, (800, 600));
            assert_eq!((places.len(), places.last(), pause), (50, Some(&to), Duration::from_millis(10)));
            assert!(places.iter().all(|place| place.x < 800 && place.y < 600));
        }
        let (places, _) = curve(from, to, Duration::from_millis(500), 1.0, (800, 600));
        assert!(places.iter().any(|place| place.y > 20), "{places:?}");
        let (places, pause) = curve(from, to, Duration::from_secs(30), 1.0, (800, 600));
        assert_eq!((places.len(), pause), (400, Duration::from_millis(75)));
        assert_eq!(curve(from, from, Duration::ZERO, 1.0, (800, 600)).0, [from]);
    }

    #[test]
    fn a_line_has_as_many_steps_as_requested() {
        let (from, to) = (Point { x: 10, y: 20 }, Point { x: 0, y: 40 });
        let places: Vec<_> = line(from, to, 4).map(|place| (place.x, place.y)).collect();
        assert_eq!(places, [(8, 25), (5, 30), (3, 35), (0, 40)]);
    }
}
