//! The options of `simulate --scale`.

use tidegate_rules::duration;

use super::case::{LimitQuota, ScaleCase};

/// What `simulate --scale --help` prints.
pub const SCALE_USAGE: &str = "\
Usage: simulate --scale [OPTION…]

Estimates what a fleet asks of its stores, for exact, leased and asynchronous rules: calls, shards,
memory, and the share of requests that nodes decide without a store. docs/scale.md has the method.

The fleet (numbers may end with k, M or G):
  --nodes N            nodes that share the stores (default 1000)
  --nodes-per-key N    nodes that requests of one key reach (default: all); 1 if a load balancer
                       sends each key to one node
  --keys N             keys, each with its own counter (default 10M)
  --rate N             requests a second offered to all nodes (default 50M)
  --exponent X         the k-th busiest key gets requests in proportion to 1/k^X; 0 if all keys get
                       equally many (default 1)

The rule:
  --limit LIMIT        the limit of each key (default \"1000/s burst 2000\")
  --ttl TIME           for how long units are leased (default 100ms)
  --flush TIME         time between two flushes of an asynchronous counter (default 100ms)

The stores:
  --shared-calls N     decisions a second of one Redis whose calls hold many decisions each
  --single-calls N     decisions a second of one Redis core whose calls hold one decision each
  --load PERCENT       how much of a core's time may be used (default 60)
  --counter-bytes N    bytes of a counter in Redis (default 184)

The check:
  --direct SECONDS     also run every node and key on the real limiter for this long, in virtual
                       time, and print the result beside the estimate; for small fleets";

/// What to estimate.
#[derive(Clone, Debug)]
pub struct ScaleRequest {
    /// The case.
    pub case: ScaleCase,
    /// For how many seconds to run every node and key, to check the estimate.
    pub direct_seconds: Option<f64>,
}

/// Parses the options after `--scale`.
///
/// # Errors
/// Which option is wrong.
pub fn parse_options(options: impl IntoIterator<Item = String>) -> Result<ScaleRequest, String> {
    let mut case = ScaleCase::internet()?;
    let (mut nodes_per_key, mut direct_seconds) = (None, None);
    let mut options = options.into_iter();
    while let Some(name) = options.next() {
        let value = options.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || parse_number(&value).ok_or_else(|| wrong(&name, &value, "a number"));
        let count = || number().and_then(|number| whole(number, &name, &value));
        let nodes = || {
            count().and_then(|n| u32::try_from(n).map_err(|_| wrong(&name, &value, "fewer nodes")))
        };
        let time = || duration::parse(&value).map_err(|_| wrong(&name, &value, "a time: `100ms`"));
        match name.as_str() {
            "--nodes" => case.nodes = nodes()?,
            "--nodes-per-key" => nodes_per_key = Some(nodes()?),
            "--keys" => case.keys = count()?,
            "--rate" => case.rate = positive(number()?, &name)?,
            "--exponent" => case.exponent = number()?,
            "--limit" => case.limit = LimitQuota::parse(&value)?,
            "--ttl" => case.ttl = time()?,
            "--flush" => case.flush = time()?,
            "--shared-calls" => case.store.shared_calls_per_second = positive(number()?, &name)?,
            "--single-calls" => case.store.single_calls_per_second = positive(number()?, &name)?,
            "--load" => case.store.load_percent = positive(number()?, &name)?,
            "--counter-bytes" => case.store.counter_bytes = positive(number()?, &name)?,
            "--direct" => direct_seconds = Some(positive(number()?, &name)?),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    case.nodes_per_key = nodes_per_key.unwrap_or(case.nodes);
    if case.nodes_per_key > case.nodes {
        return Err("--nodes-per-key is at most --nodes".to_owned());
    }
    Ok(ScaleRequest { case, direct_seconds })
}

/// A number that may end with k, M or G.
fn parse_number(text: &str) -> Option<f64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let number: f64 = digits.replace('_', "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

fn positive(number: f64, name: &str) -> Result<f64, String> {
    if number > 0.0 { Ok(number) } else { Err(format!("{name} must be above 0")) }
}

fn whole(number: f64, name: &str, value: &str) -> Result<u64, String> {
    if number < 1.0 || number.fract() != 0.0 || number > 1e15 {
        return Err(wrong(name, value, "a whole number from 1"));
    }
    Ok(super::rule_text::rounded(number))
}

fn wrong(name: &str, value: &str, expected: &str) -> String {
    format!("{name}: `{value}` should be {expected}")
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Micros;

    use super::parse_options;

    fn parse(options: &str) -> Result<super::ScaleRequest, String> {
        parse_options(options.split(' ').filter(|word| !word.is_empty()).map(str::to_owned))
    }

    #[test]
    fn options_describe_case() {
        let case = parse("--nodes 50 --keys 100k --rate 0.5M --ttl 20ms").unwrap().case;
        assert_eq!((case.nodes, case.nodes_per_key, case.keys), (50, 50, 100_000));
        assert_eq!((case.rate, case.ttl), (500_000.0, Micros::from_millis(20)));
    }

    #[test]
    fn wrong_options_are_named() {
        for (options, part) in [
            ("--nodes 1.5", "--nodes"),
            ("--nodes 0", "--nodes"),
            ("--rate x", "--rate"),
            ("--limit 5", "limit"),
            ("--nodes 2 --nodes-per-key 3", "--nodes-per-key"),
            ("--ttl", "--ttl"),
            ("--speed 3", "--speed"),
        ] {
            let error = parse(options).unwrap_err();
            assert!(error.contains(part), "{options}: {error}");
        }
    }
}
