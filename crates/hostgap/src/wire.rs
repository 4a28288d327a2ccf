//! Options for delay, loss and bandwidth of the wire between the nodes.

use ::record::{BitRate, Delay, Share, Underlay, Wire};

/// What the wire between the nodes does to packets. These options need netem in the kernel, and tbf for a line rate.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WireArgs {
    /// The delay in each direction (40ms); a round trip takes twice that.
    #[arg(long, value_name = "TIME")]
    delay: Option<Delay>,
    /// The greatest deviation from the delay (2ms), uniformly distributed; packets can then overtake each other.
    #[arg(long, value_name = "TIME")]
    jitter: Option<Delay>,
    /// The share of packets that are lost in each direction (0.2%).
    #[arg(long, value_name = "SHARE")]
    loss: Option<Share>,
    /// The share of packets that overtake those before them (1%).
    #[arg(long, value_name = "SHARE")]
    reorder: Option<Share>,
    /// The bandwidth in each direction (512kbit, 100mbit, 2.5gbit).
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    /// The rate at which each node's own card sends (10gbit). The queue in front of it is the node's; `qdisc` manages
    /// it.
    #[arg(long, value_name = "RATE")]
    line_rate: Option<BitRate>,
    /// Split large packets into segments before they enter the wire, so that each segment is lost by itself.
    #[arg(long)]
    no_gso: bool,
}

impl WireArgs {
    /// Applies the options to the underlay of a file, in both directions.
    pub(crate) fn change(&self, underlay: &mut Underlay) {
        let options = Wire {
            delay: self.delay,
            jitter: self.jitter,
            loss: self.loss,
            reorder: self.reorder,
            rate: self.bandwidth,
            line_rate: self.line_rate,
            gso: self.no_gso.then_some(false),
        };
        *underlay = underlay.clone().with_both_ways(options.or(underlay.both_ways()));
        for way in [&mut underlay.to_server, &mut underlay.to_client].into_iter().flatten() {
            *way = options.or(*way);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        wire: WireArgs,
    }

    #[test]
    fn options_hold_for_both_directions_whatever_the_file_says() {
        let command = Command::try_parse_from(["x", "--delay", "40ms", "--bandwidth", "1gbit", "--no-gso"]);
        let wire =
            |delay: &str| Wire { delay: delay.parse().ok(), loss: "1%".parse().ok(), ..Wire::default() };
        let mut underlay = Underlay { to_client: Some(wire("9ms")), mtu: 9000, ..Underlay::default() };
        command.unwrap().wire.change(&mut underlay);
        assert_eq!(underlay.to_server().to_string(), "delay 40ms, rate 1gbit, no GSO");
        assert_eq!(underlay.to_client().to_string(), "delay 40ms, loss 1%, rate 1gbit, no GSO");
        assert_eq!(underlay.mtu, 9000);
        let plain = Command::try_parse_from(["x"]).unwrap().wire;
        let before = underlay.clone();
        plain.change(&mut underlay);
        assert_eq!(underlay, before);
    }

    #[test]
    fn a_figure_without_its_unit_is_refused_with_an_example() {
        let error = Command::try_parse_from(["x", "--loss", "0.002"]).err().unwrap().to_string();
        assert!(error.contains("a share of packets: 0.2% or 5% is expected"), "{error}");
    }
}
