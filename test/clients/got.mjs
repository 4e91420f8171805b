// Sends two requests with got and its default retries.
import got from 'got';

for (let i = 0; i < 2; i++) {
	const response = await got(process.argv[2]);
	console.log(response.statusCode);
}
