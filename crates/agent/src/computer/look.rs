//! Looks at the page before the mouse acts: its zoom, and the list or picker that is open.
//!
//! An open list or picker is a widget of its own, which the debugging protocol draws into pictures, but does not reach with
//! the mouse. Its place is where a picture with it differs from one without it.

use std::ops::Range;
use std::time::Duration;

use serde_json::json;

use super::input_error::InputError;
use super::page_input::{EVENT, PageInput};
use crate::browser::focused::OpenPicker;
use crate::browser::{Browser, Page};
use crate::cdp::CdpError;
use crate::picture::Rgb;

/// The maximum number of tries until an open list or picker is drawn, and the pause between them.
const MAX_TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// What the mouse meets in a page.
#[derive(Debug)]
pub(super) struct Seen {
    /// The number of pixels per pixel of the page.
    pub(super) scale: f64,
    pub(super) picker: Option<DrawnPicker>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { scale: 1.0, picker: None }
    }
}

/// An open list or picker and its place in the picture.
#[derive(Debug, Clone)]
pub(super) struct DrawnPicker {
    pub(super) open: OpenPicker,
    columns: Range<usize>,
    rows: Range<usize>,
}

impl DrawnPicker {
    pub(super) fn is_at(&self, x: u32, y: u32) -> bool {
        self.columns.contains(&(x as usize)) && self.rows.contains(&(y as usize))
    }

    /// Returns the error of input that it does not take.
    pub(super) fn refusal(&self) -> InputError {
        let how = if self.open.is_list() { "choose with ArrowDown, ArrowUp and Return" } else { "use its keys" };
        let open = &self.open;
        InputError::Picker(format!(
            "{open} does not accept this input without a display: {how}, or close it with Escape"
        ))
    }
}

impl PageInput {
    /// Looks at the page, for the mouse of the next events.
    pub(super) async fn look(&mut self) -> Result<(), InputError> {
        self.seen = Seen::default();
        let Some(page) = self.page.clone().filter(|page| !self.browser.has_dialog(page)) else { return Ok(()) };
        let seen = tokio::select! {
            seen = see(&self.browser, &page) => seen,
            _ = self.interruption(&page) => return Ok(()),
        };
        match seen {
            Ok(seen) => self.seen = seen,
            // The document has just been left.
            Err(InputError::Page(CdpError::Refused { .. })) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

async fn see(browser: &Browser, page: &Page) -> Result<Seen, InputError> {
    let metrics = browser.cdp.call(Some(&page.session), "Page.getLayoutMetrics", json!({}), EVENT).await?;
    let factor = |name: &str| metrics["cssVisualViewport"][name].as_f64().filter(|factor| *factor > 0.0).unwrap_or(1.0);
    let scale = factor("zoom") * factor("scale");
    for _ in 0..MAX_TRIES {
        let Some(open) = OpenPicker::find(browser, page).await? else { return Ok(Seen { scale, picker: None }) };
        let behind = decoded(&browser.capture_without_pickers(page).await?)?;
        let whole = decoded(&browser.capture_visible(page).await?)?;
        let again = decoded(&browser.capture_without_pickers(page).await?)?;
        if let Some((columns, rows)) = place(&behind, &whole, &again) {
            return Ok(Seen { scale, picker: Some(DrawnPicker { open, columns, rows }) });
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(InputError::Picker("a list or picker is open, but not drawn: close it with Escape".to_owned()))
}

/// Decodes a picture of the page.
pub(super) fn decoded(png: &[u8]) -> Result<Rgb, CdpError> {
    let message = "the picture is not readable".to_owned();
    Rgb::decode(png).ok_or(CdpError::Refused { method: "Page.captureScreenshot", message })
}

/// Returns the columns and rows of the pixels that differ in `whole` from what is behind it. Pixels that have changed by
/// themselves, from the picture before to the one after it, are left out.
fn place(behind: &Rgb, whole: &Rgb, again: &Rgb) -> Option<(Range<usize>, Range<usize>)> {
    let mut place: Option<(Range<usize>, Range<usize>)> = None;
    for (y, ((behind, whole), again)) in behind.rows().zip(whole.rows()).zip(again.rows()).enumerate() {
        let mut pixels = behind.iter().zip(whole).zip(again);
        let differs = |((behind, whole), again): ((&[u8; 3], &[u8; 3]), &[u8; 3])| behind == again && behind != whole;
        let Some(first) = pixels.position(differs) else { continue };
        let last = first + 1 + pixels.rposition(differs).map_or(0, |last| last + 1);
        place = Some(match place {
            Some((columns, rows)) => (columns.start.min(first)..columns.end.max(last), rows.start..y + 1),
            None => (first..last, y..y + 1),
        });
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a picture of four by three pixels, of which the given ones are black.
    fn picture(black: &[(usize, usize)]) -> Rgb {
        let grey = |x, y| if black.contains(&(x, y)) { [0; 3] } else { [9; 3] };
        Rgb::of_rows(4, (0..3).map(|y| (0..4).map(|x| grey(x, y)).collect()).collect())
    }

    #[test]
    fn a_list_is_where_the_picture_with_it_differs_from_both_without_it() {
        let (none, list) = (picture(&[]), picture(&[(1, 1), (2, 2)]));
        assert_eq!(place(&none, &list, &none), Some((1..3, 1..3)));
        assert_eq!(place(&none, &none, &none), None);
        assert_eq!(place(&none, &picture(&[(3, 0)]), &none), Some((3..4, 0..1)));
        assert_eq!(place(&none, &list, &picture(&[(1, 1)])), Some((2..3, 2..3)), "the page changed itself");
    }
}
