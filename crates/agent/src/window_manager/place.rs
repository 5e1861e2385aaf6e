//! Where windows are: within the display, which nothing may exceed, because nobody could scroll to the rest.

/// The position and the size of a window, in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) width: i32,
    pub(super) height: i32,
}

impl Place {
    /// Returns all of a display.
    pub(super) fn whole(width: u16, height: u16) -> Self {
        Self { x: 0, y: 0, width: width.into(), height: height.into() }
    }

    /// Returns the place with its size and position reduced to the display.
    ///
    /// A place that is one pixel short of the display becomes all of it: Chromium takes that pixel off so that no
    /// window manager treats the window as full screen.
    pub(super) fn within(self, display: Self) -> Self {
        let side = |side: i32, whole: i32| side.clamp(1, whole.max(1));
        let (mut width, mut height) = (side(self.width, display.width), side(self.height, display.height));
        if width >= display.width - 1 && height >= display.height - 1 {
            (width, height) = (display.width, display.height);
        }
        let edge = |edge: i32, side: i32, whole: i32| edge.clamp(0, (whole - side).max(0));
        Self { x: edge(self.x, width, display.width), y: edge(self.y, height, display.height), width, height }
    }

    /// Returns the place moved to the middle of another one.
    pub(super) fn centred_on(self, other: Self) -> Self {
        let middle = |from: i32, whole: i32, side: i32| from + (whole - side) / 2;
        Self { x: middle(other.x, other.width, self.width), y: middle(other.y, other.height, self.height), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISPLAY: Place = Place { x: 0, y: 0, width: 1024, height: 768 };

    fn place(x: i32, y: i32, width: i32, height: i32) -> Place {
        Place { x, y, width, height }
    }

    #[test]
    fn a_place_is_reduced_to_the_display_and_otherwise_unchanged() {
        assert_eq!(place(100, 50, 400, 300).within(DISPLAY), place(100, 50, 400, 300));
        assert_eq!(place(900, 700, 400, 300).within(DISPLAY), place(624, 468, 400, 300));
        assert_eq!(place(-20, -30, 5000, 300).within(DISPLAY), place(0, 0, 1024, 300));
        assert_eq!(place(0, 0, 0, -1).within(DISPLAY), place(0, 0, 1, 1));
    }

    #[test]
    fn a_place_one_pixel_short_of_the_display_is_all_of_it() {
        assert_eq!(place(0, 0, 1023, 767).within(DISPLAY), DISPLAY);
        assert_eq!(place(0, 0, 1022, 767).within(DISPLAY), place(0, 0, 1022, 767));
    }

    #[test]
    fn a_dialog_is_centred_and_stays_within_the_display() {
        assert_eq!(place(0, 0, 200, 100).centred_on(DISPLAY), place(412, 334, 200, 100));
        let corner = place(900, 700, 100, 50);
        assert_eq!(place(0, 0, 400, 300).centred_on(corner).within(DISPLAY), place(624, 468, 400, 300));
    }
}
