// Formats numbers, times and sizes.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1, notation: "compact" });

/** A count: exact below 100 000, otherwise abbreviated. */
export const count = (number) => (number < 100000 ? whole : short).format(number);

/** A number of keys, or of units. */
export const keys = (number) => `${count(number)} ${number === 1 ? "key" : "keys"}`;
export const units = (number) => `${count(number)} ${number === 1 ? "unit" : "units"}`;

/** A rate per second. */
export function rate(number) {
  if (number === 0) return "0";
  if (number < 0.05) return "< 0.1";
  return number < 9.95 ? number.toFixed(1) : count(Math.round(number));
}

/** A share between 0 and 1, as a percentage. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const hundredths = share * 100;
  return `${hundredths > 0 && hundredths < 9.95 ? hundredths.toFixed(1) : Math.round(hundredths)} %`;
}

/** A duration in microseconds. */
export function micros(us) {
  if (us === null || !Number.isFinite(us)) return "–";
  if (us === 0) return "0";
  if (us < 1000) return `${us < 10 ? us.toFixed(1) : Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

/** A wait in milliseconds, in at most two units; rounded up, so that the wait is sufficient. */
export function millis(ms) {
  if (ms === null || ms === undefined) return "never";
  if (ms === 0) return "0 s";
  if (ms < 1000) return `${ms} ms`;
  const [tenths, seconds] = [Math.ceil(ms / 100), Math.ceil(ms / 1000)];
  if (seconds < 10) return `${tenths / 10} s`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return twoUnits(seconds, 60, "min", "s");
  if (seconds < 86400) return twoUnits(Math.ceil(seconds / 60), 60, "h", "min");
  return twoUnits(Math.ceil(seconds / 3600), 24, "d", "h");
}

function twoUnits(number, size, large, small) {
  const rest = number % size;
  return `${Math.floor(number / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

/** A size in bytes. */
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) {
    number /= 1024;
    at += 1;
  }
  return `${number < 10 && at > 0 ? number.toFixed(1) : Math.round(number)} ${units[at]}`;
}

/** The time of day of a timestamp in microseconds. */
export const clock = (us) => new Date(us / 1000).toLocaleTimeString("en-GB");

/** An RFC 3339 timestamp as local date and time. */
export const date = (text) => new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
