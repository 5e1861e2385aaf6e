//! Pages of lists.

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// The requested part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The maximum number of items, 1 to 100.
    pub limit: u32,
    /// The number of items before the page.
    pub offset: u64,
}

impl Page {
    /// The default of `limit`.
    pub const DEFAULT_LIMIT: u32 = 20;
    /// The maximum of `limit`.
    pub const MAX_LIMIT: u32 = 100;
    /// The maximum of `offset`, behind the end of every list. A larger one is lowered to it, so that no sum of an offset
    /// and a limit overflows.
    pub const MAX_OFFSET: u64 = 1 << 53;

    /// Parses a request. Absent values take their defaults.
    ///
    /// # Errors
    /// `limit` or `offset` is out of range.
    pub fn parse(limit: Option<i64>, offset: Option<i64>) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let limit = fields.take_optional("limit", limit, |n| within(n, 1, Self::MAX_LIMIT));
        let offset = fields.take_optional("offset", offset, |n| {
            u64::try_from(n).map_err(|_| InvalidValue::new(FieldCode::OutOfRange, "must be at least 0"))
        });
        let offset = offset.map(|offset| offset.min(Self::MAX_OFFSET));
        fields.finish()?;
        Ok(Self { limit: limit.unwrap_or(Self::DEFAULT_LIMIT), offset: offset.unwrap_or(0) })
    }

    /// Cuts `found` to the size of the page. One item more than that shows that a next page exists.
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
    /// The offset of the next page; `None` on the last one.
    pub next_offset: Option<u64>,
}

impl<T> Listed<T> {
    /// Converts the items.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Listed<U> {
        Listed { items: self.items.into_iter().map(convert).collect(), next_offset: self.next_offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_behind_every_list_is_an_empty_last_page() {
        let page = Page::parse(Some(100), Some(i64::MAX)).expect("a page");
        assert_eq!(page, Page { limit: 100, offset: Page::MAX_OFFSET });
        assert_eq!(page.cut(Vec::<u8>::new()), Listed { items: Vec::new(), next_offset: None });
        for (limit, offset, field) in
            [(0, 0, "limit"), (101, 0, "limit"), (i64::MAX, 0, "limit"), (1, -1, "offset"), (1, i64::MIN, "offset")]
        {
            let refused = Page::parse(Some(limit), Some(offset)).expect_err("refused");
            assert_eq!(refused.fields().iter().map(|one| &*one.field).collect::<Vec<_>>(), [field], "{limit} {offset}");
        }
    }
}
