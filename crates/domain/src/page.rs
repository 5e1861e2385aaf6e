//! Pages of lists.

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most so many items, 1 to 100.
    pub limit: u32,
    /// How many items come before.
    pub offset: u64,
}

impl Page {
    /// How many items a page holds unless asked otherwise.
    pub const DEFAULT_LIMIT: u32 = 20;
    /// How many items a page holds at most.
    pub const MAX_LIMIT: u32 = 100;

    /// A page as asked for; what is absent takes its default.
    ///
    /// # Errors
    /// The bounds that `limit` or `offset` leaves.
    pub fn parse(limit: Option<i64>, offset: Option<i64>) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let limit = fields.take_optional("limit", limit, |n| within(n, 1, Self::MAX_LIMIT));
        let offset = fields.take_optional("offset", offset, |n| {
            u64::try_from(n).map_err(|_| InvalidValue::new(FieldCode::OutOfRange, "must be at least 0"))
        });
        fields.finish()?;
        Ok(Self { limit: limit.unwrap_or(Self::DEFAULT_LIMIT), offset: offset.unwrap_or(0) })
    }

    /// Cuts what a store found, having asked for one item more than the page holds.
    #[must_use]
    pub fn cut<T>(self, mut found: Vec<T>) -> Listed<T> {
        let size = self.limit as usize;
        let more = found.len() > size;
        found.truncate(size);
        Listed { items: found, next_offset: more.then(|| self.offset + u64::from(self.limit)) }
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// Where the next page begins; `None` on the last.
    pub next_offset: Option<u64>,
}

impl<T> Listed<T> {
    /// The same page of something else.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Listed<U> {
        Listed { items: self.items.into_iter().map(convert).collect(), next_offset: self.next_offset }
    }
}
