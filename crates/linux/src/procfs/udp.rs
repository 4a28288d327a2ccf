//! `/proc/net/udp` and `udp6`: the sockets for datagrams.

use std::net::{IpAddr, SocketAddr};

use super::Procfs;
use super::net::own_net;
use crate::Result;

/// A socket for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocket {
    /// The address and port to which it is bound.
    pub local: SocketAddr,
    /// Its number, by which `/proc/PID/fd` names it too.
    pub inode: u64,
    /// Received datagrams that it dropped since it was made, because its buffer was full or a checksum was wrong.
    pub drops: u64,
}

impl Procfs {
    /// The sockets for datagrams of the calling thread's namespace, IPv4 then IPv6.
    pub fn udp_sockets(&self) -> Result<Vec<UdpSocket>> {
        let mut sockets = Vec::new();
        for file in ["udp", "udp6"].map(own_net) {
            let text = self.read(&file)?.unwrap_or_default();
            for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
                sockets.push(parse(line).ok_or_else(|| self.misread(&file, line))?);
            }
        }
        Ok(sockets)
    }
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ref pointer drops`
/// (`udp4_format_sock` in net/ipv4/udp.c).
fn parse(line: &str) -> Option<UdpSocket> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, _, _, _, _, _, _, _, inode, _, _, drops] = words[..] else { return None };
    Some(UdpSocket { local: address(local)?, inode: inode.parse().ok()?, drops: drops.parse().ok()? })
}

/// An address as the kernel keeps it, in the network's order, printed as numbers of the machine's, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|word| {
        let number = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(number.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::fake::proc_with;
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn both_families_are_read() {
        let udp = "  351: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 18334 2 00000000a1b2c3d4 17        \n";
        let udp6 = "  352: B80D0120000000000000000001000000:01BB 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18335 2 00000000a1b2c3d5 0\n";
        let files = [
            ("thread-self/net/udp", format!("{HEAD}{udp}")),
            ("thread-self/net/udp6", format!("{HEAD}{udp6}")),
        ];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        let (_directory, procfs) = proc_with(&files);
        let socket = |local: &str, inode, drops| UdpSocket { local: local.parse().unwrap(), inode, drops };
        assert_eq!(
            procfs.udp_sockets().unwrap(),
            [socket("127.0.0.1:53", 18_334, 17), socket("[2001:db8::1]:443", 18_335, 0)]
        );
    }

    #[test]
    fn a_line_that_is_cut_is_named() {
        let text = format!("{HEAD}  351: 0100007F:0035 00000000:0000 07\n");
        let (_directory, procfs) = proc_with(&[("thread-self/net/udp", text.as_str())]);
        assert!(procfs.udp_sockets().unwrap_err().to_string().contains("0100007F:0035"));
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        let own = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)]
            .map(|ip| std::net::UdpSocket::bind((ip, 0)).unwrap());
        let sockets = Procfs::kernel().udp_sockets().unwrap();
        for socket in own {
            let local = socket.local_addr().unwrap();
            assert!(sockets.iter().any(|one| one.local == local && one.drops == 0), "{local}");
        }
    }
}
