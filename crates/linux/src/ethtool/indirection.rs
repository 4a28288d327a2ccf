//! The table by which a card spreads flows over its receive queues (RSS).
//!
//! By `SIOCETHTOOL`, which every kernel has. Source: include/uapi/linux/ethtool.h (`struct ethtool_rxfh_indir`).

use super::Ethtool;
use crate::{Error, IfName, Result};

const GET: u32 = 0x38;
const SET: u32 = 0x39;
/// The command and the number of entries stand before the entries.
const HEAD: usize = 2;
/// Ten times the longest table of a known driver; an answer that claims more is rejected.
const ENTRIES_MAX: u32 = 1 << 16;

impl Ethtool {
    /// The receive queue of each entry; `None` if the card has no table.
    pub fn read_indirection(&self, link: &IfName) -> Result<Option<Vec<u32>>> {
        let attempted = || self.attempted("read", link);
        let mut question = [GET, 0];
        match self.ioctl(link, &mut question) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP)) => return Ok(None),
            Err(error) => return Err(Error::new(attempted(), error)),
        }
        let [_, entries] = question;
        if entries == 0 {
            return Ok(None);
        }
        if entries > ENTRIES_MAX {
            return Err(Error::invalid(attempted(), format!("a table of {entries} entries")));
        }
        let mut table = vec![0; HEAD + entries as usize];
        (table[0], table[1]) = (GET, entries);
        self.ioctl(link, &mut table).map_err(|error| Error::new(attempted(), error))?;
        Ok(Some(table.split_off(HEAD)))
    }

    /// Sets the receive queue of each entry; no entries leave the table to the driver again. `EINVAL` for a queue that
    /// is not there or a table of another length.
    pub fn write_indirection(&self, link: &IfName, table: &[u32]) -> Result<()> {
        let entries = u32::try_from(table.len()).unwrap_or(ENTRIES_MAX);
        let mut request = [&[SET, entries], table].concat();
        self.ioctl(link, &mut request).map_err(|error| Error::new(self.attempted("set", link), error))
    }

    fn attempted(&self, verb: &str, link: &IfName) -> String {
        format!("{verb} the table of flows of {link} in {}", self.place)
    }
}
