//! Names of the kernel's functions, and of BPF programs, which it lists among them.

use std::path::Path;

use crate::error::Attempt;
use crate::{Error, Result};

/// Kernel functions, sorted by start address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols(Vec<(u64, Box<str>)>);

impl Symbols {
    /// Those of the running kernel: of modules and BPF programs too, as they are loaded now.
    ///
    /// # Errors
    ///
    /// `/proc/kallsyms` cannot be read, or the kernel hides its addresses from the caller.
    pub fn kernel() -> Result<Symbols> {
        Symbols::read(Path::new("/proc/kallsyms"))
    }

    fn read(path: &Path) -> Result<Symbols> {
        let attempted = || format!("read {}", path.display());
        // Names of BPF programs are the loader's choice and may be no text.
        let bytes = std::fs::read(path).attempt(attempted)?;
        let symbols = Symbols::parse(&String::from_utf8_lossy(&bytes));
        if symbols.0.is_empty() {
            return Err(Error::invalid(
                attempted(),
                "all addresses are hidden: CAP_SYSLOG is needed, and kernel.kptr_restrict below 2",
            ));
        }
        Ok(symbols)
    }

    /// Parses the text of such a file, lines of `address type name [module]`; hidden addresses (0) and data are left
    /// out.
    pub fn parse(text: &str) -> Symbols {
        let mut symbols: Vec<(u64, Box<str>)> = text.lines().filter_map(function).collect();
        // Stable: of several names of an address, the order of the file is kept.
        symbols.sort_by_key(|(address, _)| *address);
        symbols.dedup_by(|later, first| {
            let same = later.0 == first.0;
            // The name that people use is the one without underscores.
            if same && first.1.starts_with('_') && !later.1.starts_with('_') {
                std::mem::swap(&mut later.1, &mut first.1);
            }
            same
        });
        Symbols(symbols)
    }

    /// The function that an address lies in: the last that begins at it or before it.
    pub fn name(&self, address: u64) -> Option<&str> {
        let next = self.0.partition_point(|(begin, _)| *begin <= address);
        Some(&self.0[next.checked_sub(1)?].1)
    }
}

/// A function's address and its name, without the compiler's suffixes for copies (`.isra.0`, `.cold`).
fn function(line: &str) -> Option<(u64, Box<str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    words.next().filter(|kind| ["t", "T", "w", "W"].contains(kind))?;
    let name = words.next()?;
    let plain = name.split('.').next().filter(|plain| !plain.is_empty()).unwrap_or(name);
    Some((address, plain.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _text\n\
                        ffffffff81000000 T startup_64\n\
                        ffffffff81000300 d some_table\n\
                        ffffffff81000400 t tcp_ack.part.0\n\
                        ffffffffc0000000 t nf_conntrack_in\t[nf_conntrack]\n\
                        ffffffffc0200000 t bpf_prog_6deef7357e7b4530_from_pod\t[bpf]\n\
                        ffffffff81000200 T ip_rcv\n";

    #[test]
    fn an_address_lies_in_the_function_before_it() {
        let symbols = Symbols::parse(TEXT);
        let name = |address| symbols.name(address);
        assert_eq!(name(0xffff_ffff_8100_0000), Some("startup_64"));
        assert_eq!(name(0xffff_ffff_8100_01ff), Some("startup_64"));
        assert_eq!(name(0xffff_ffff_8100_0200), Some("ip_rcv"));
        assert_eq!(name(0xffff_ffff_8100_0350), Some("ip_rcv"), "data is no function");
        assert_eq!(name(0xffff_ffff_8100_0410), Some("tcp_ack"));
        assert_eq!(name(0xffff_ffff_c000_0010), Some("nf_conntrack_in"));
        assert_eq!(name(0xffff_ffff_c020_0010), Some("bpf_prog_6deef7357e7b4530_from_pod"));
        assert_eq!(name(0x1000), None);
    }

    #[test]
    fn hidden_addresses_are_an_error_with_its_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kallsyms");
        std::fs::write(&path, "0000000000000000 T _text\n0000000000000000 T ip_rcv\n").unwrap();
        let error = Symbols::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("kallsyms: all addresses are hidden") && error.contains("kptr_restrict"),
            "{error}"
        );
    }
}
