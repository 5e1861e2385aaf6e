//! Refused attempts: repeated ones are merged, so that a caller cannot flood the audit log.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::{HashMap, VecDeque};

use time::{Duration, OffsetDateTime};

use super::AuditEntry;
use crate::ids::{ApiKeyId, ProjectId};

/// The time for which attempts after a first one are counted before they are recorded.
const WINDOW: Duration = Duration::MINUTE;
/// The maximum number of addresses that are distinguished for one key at a time. Attempts from further addresses are
/// recorded without their address.
const MAX_ADDRESSES: u32 = 32;
/// The maximum number of kinds that are counted at a time. Beyond it the oldest kind is recorded at once.
const MAX_KINDS: usize = 10_000;

/// The attempts that are counted together: with the same key, from the same IPv4 address or IPv6 /64 network, and with
/// the same status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    key: Option<ApiKeyId>,
    project: Option<ProjectId>,
    from: String,
    status: u16,
}

/// The attempts of a kind since the first one, which has a record of its own.
#[derive(Debug)]
struct Counted {
    last: Option<AuditEntry>,
    ends: OffsetDateTime,
}

/// Merges refused attempts: the first of a kind is recorded at once; those that follow within a minute are recorded as
/// one record at the end of that minute.
#[derive(Debug, Default)]
pub struct RefusedAttempts {
    counted: HashMap<Kind, Counted>,
    /// The kinds in the order in which their minutes end.
    order: VecDeque<Kind>,
    addresses: HashMap<Option<ApiKeyId>, u32>,
}

impl RefusedAttempts {
    /// Counts an attempt. Returns the record to store now, if any: the attempt if it is the first of its kind, or the
    /// merged record of the oldest kind if there are too many kinds.
    #[must_use]
    pub fn take(&mut self, mut entry: AuditEntry) -> Option<AuditEntry> {
        let from = network_of(&entry.client_ip);
        let mut kind = Kind { key: entry.api_key, project: entry.project, from, status: entry.status };
        if !self.counted.contains_key(&kind) && self.addresses.get(&kind.key).is_some_and(|from| *from >= MAX_ADDRESSES)
        {
            kind.from = String::new();
            entry.client_ip = String::new();
        }
        if let Some(counted) = self.counted.get_mut(&kind) {
            let before = counted.last.as_ref().map_or(0, |last| last.count);
            counted.last = Some(AuditEntry { count: before.saturating_add(entry.count), ..entry });
            return None;
        }
        let pushed_out = if self.order.len() < MAX_KINDS { None } else { self.close_oldest() };
        *self.addresses.entry(kind.key).or_default() += 1;
        self.counted.insert(kind.clone(), Counted { last: None, ends: entry.at + WINDOW });
        self.order.push_back(kind);
        match pushed_out {
            // Then the first attempt is recorded at the end of its minute.
            Some(counted) => self.take(entry).or(Some(counted)),
            None => Some(entry),
        }
    }

    /// Returns the records of the kinds whose minute is over at `now`.
    pub fn due(&mut self, now: OffsetDateTime) -> Vec<AuditEntry> {
        let mut due = Vec::new();
        while self.order.front().and_then(|kind| self.counted.get(kind)).is_some_and(|counted| counted.ends <= now) {
            due.extend(self.close_oldest());
        }
        due
    }

    /// Returns the records of all kinds, even if their minutes are not over.
    pub fn finish(&mut self) -> Vec<AuditEntry> {
        let mut all = Vec::new();
        while !self.order.is_empty() {
            all.extend(self.close_oldest());
        }
        all
    }

    fn close_oldest(&mut self) -> Option<AuditEntry> {
        let kind = self.order.pop_front()?;
        if let Some(from) = self.addresses.get_mut(&kind.key) {
            *from -= 1;
            if *from == 0 {
                self.addresses.remove(&kind.key);
            }
        }
        self.counted.remove(&kind)?.last
    }
}

/// Returns the IPv4 address or the IPv6 /64 network, which the holder of one IPv6 address usually controls.
fn network_of(address: &str) -> String {
    match address.parse() {
        Ok(IpAddr::V6(address)) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).to_string(),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AuthStrategy;
    use crate::testing::{NOON, audit_entry};
    use ulid::Ulid;

    fn tried(n: u32, key: u128, from: &str) -> AuditEntry {
        AuditEntry {
            auth_strategy: AuthStrategy::None,
            api_key: Some(ApiKeyId::from_ulid(Ulid(key))),
            client_ip: from.to_owned(),
            status: 401,
            ..audit_entry(n)
        }
    }

    #[test]
    fn the_first_try_has_its_record_and_the_others_of_its_minute_have_one_together() {
        let mut tries = RefusedAttempts::default();
        assert_eq!(tries.take(tried(1, 7, "192.0.2.1")), Some(tried(1, 7, "192.0.2.1")));
        for n in 2..=1000 {
            assert_eq!(tries.take(tried(n, 7, "192.0.2.1")), None);
        }
        assert_eq!(tries.take(tried(1001, 8, "192.0.2.1")), Some(tried(1001, 8, "192.0.2.1")), "another key");
        assert_eq!(tries.take(tried(1002, 7, "192.0.2.2")), Some(tried(1002, 7, "192.0.2.2")), "another address");
        assert_eq!(tries.due(tried(1, 7, "").at + WINDOW - Duration::MICROSECOND), []);
        let rest = AuditEntry { count: 999, ..tried(1000, 7, "192.0.2.1") };
        assert_eq!(tries.due(tried(1002, 7, "").at + WINDOW), [rest]);
        let anew = AuditEntry { at: NOON + Duration::HOUR, ..tried(1, 7, "192.0.2.1") };
        assert_eq!(tries.take(anew.clone()), Some(anew), "a minute later it begins anew");
    }

    #[test]
    fn many_addresses_leave_few_records_of_a_key() {
        let mut tries = RefusedAttempts::default();
        let all = (0..5000).filter_map(|n| tries.take(tried(n, 7, &format!("198.51.{}.{}", n / 250, n % 250)))).count();
        assert_eq!(all, MAX_ADDRESSES as usize + 1);
        let rest = tries.finish();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].client_ip.as_str(), rest[0].count), ("", 5000 - MAX_ADDRESSES - 1));
        let mut networks = RefusedAttempts::default();
        let all = (0..5000).filter_map(|n| networks.take(tried(n, 7, &format!("2001:db8::{n:x}")))).count();
        assert_eq!(all, 1);
    }

    #[test]
    fn no_number_of_keys_takes_more_memory_and_none_is_left_out() {
        let mut tries = RefusedAttempts::default();
        let mut recorded = 0;
        for round in 0..2 {
            for n in 0..20_000 {
                recorded += tries.take(tried(round, n, "192.0.2.1")).map_or(0, |entry| entry.count);
            }
        }
        assert!(tries.counted.len() <= MAX_KINDS && tries.order.len() <= MAX_KINDS);
        assert!(tries.addresses.len() <= MAX_KINDS);
        recorded += tries.finish().iter().map(|entry| entry.count).sum::<u32>();
        assert_eq!(recorded, 40_000);
        assert!(tries.addresses.is_empty());
    }
}
