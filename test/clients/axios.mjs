// Sends two requests with axios and axios-retry, which waits for Retry-After.
import axios from 'axios';
import axiosRetry from 'axios-retry';

axiosRetry(axios, {
	retries: 3,
	retryDelay: axiosRetry.exponentialDelay,
	retryCondition: (error) => error.response?.status === 429,
});
for (let i = 0; i < 2; i++) {
	const response = await axios.get(process.argv[2]);
	console.log(response.status);
}
